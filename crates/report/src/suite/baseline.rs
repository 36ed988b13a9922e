//! What tests allocate and need more than in an earlier run.
//!
//! Both figures of each test are compared as `nthbyte diff` compares rows ([`crate::statistics`]): of the tests that are said to
//! have grown, at most one in twenty is expected to have grown by chance. A growth of less than [`TOLERANCE`] and
//! [`SMALLEST`] is none that anybody wants to hear of: the test is for more than that.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Suite, TestRow};
use crate::estimate::{Estimate, Moments};
use crate::statistics::difference::{Side, compare};
use crate::statistics::discovery::{Test, adjust};

/// The false discovery rate, which `nthbyte diff` has, too.
pub const RATE: f64 = 0.05;
/// Growth that is tolerated, as a part of what was.
pub const TOLERANCE: f64 = 0.1;
/// Growth that is tolerated, in bytes.
pub const SMALLEST: f64 = 65_536.0;

/// What a figure is made of, for later comparisons: see [`Moments`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The estimate, in bytes.
    pub estimate: f64,
    /// The bytes of the sampled objects.
    pub seen: f64,
    /// Its variance.
    pub variance: f64,
    /// Its third central moment.
    pub third: f64,
    /// The heaviest weight that a sample could have had.
    pub heaviest: f64,
    /// Whether every allocation was recorded.
    pub exact: bool,
}

impl Evidence {
    pub(super) fn of(moments: &Moments, heaviest: f64, exact: bool) -> Self {
        Self {
            estimate: moments.estimate,
            seen: moments.seen,
            variance: moments.variance,
            third: moments.third,
            heaviest: heaviest.max(1.0),
            exact,
        }
    }

    fn side(&self) -> Side {
        Side {
            mean: Moments {
                estimate: self.estimate,
                seen: self.seen,
                variance: self.variance,
                third: self.third,
            },
            runs: 1,
            unit: self.heaviest.max(1.0),
            typical: self.heaviest.max(1.0),
            exact: self.exact,
        }
    }
}

/// The evidence of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidences {
    /// Of the bytes that it allocated.
    pub allocated: Evidence,
    /// Of its peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Evidence>,
}

/// An earlier run: a file that `nthbyte tests --json` has written.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Baseline {
    rows: Vec<Earlier>,
}

#[derive(Clone, Debug, Deserialize)]
struct Earlier {
    name: String,
    #[serde(default)]
    scope: Option<String>,
    evidence: Evidences,
}

/// A figure of a test that has grown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestGrowth {
    /// The test.
    pub name: String,
    /// `allocated` or `peak`.
    pub figure: &'static str,
    /// What it was.
    pub old: Estimate,
    /// What it is.
    pub new: Estimate,
    /// The smallest false discovery rate at which it passes.
    pub q: f64,
}

/// The comparison with an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Changes {
    /// What has grown, in the order of the run.
    pub grown: Vec<TestGrowth>,
    /// Tests that both runs have.
    pub compared: usize,
    /// Tests that the earlier run lacks.
    pub new: usize,
}

impl Suite {
    /// Compares the tests with the tests of an earlier run.
    #[must_use]
    pub fn since(&self, baseline: &Baseline) -> Changes {
        let earlier: HashMap<&str, &Earlier> = baseline
            .rows
            .iter()
            .filter(|row| row.scope.is_none())
            .map(|row| (row.name.as_str(), row))
            .collect();
        let mut changes = Changes::default();
        let mut found: Vec<(TestGrowth, Test)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.owner.scope.is_none()) {
            let Some(old) = earlier.get(row.owner.name.as_str()) else {
                changes.new += 1;
                continue;
            };
            changes.compared += 1;
            found.push(compared(
                row,
                "allocated",
                &old.evidence.allocated,
                &row.evidence.allocated,
            ));
            if let (Some(old), Some(new)) = (&old.evidence.peak, &row.evidence.peak) {
                found.push(compared(row, "peak", old, new));
            }
        }
        let tests: Vec<Test> = found.iter().map(|&(_, test)| test).collect();
        let (rates, _) = adjust(&tests, RATE);
        let grown = found.into_iter().zip(rates).filter(|&(_, q)| q <= RATE);
        changes.grown = grown
            .map(|((growth, _), q)| TestGrowth { q, ..growth })
            .collect();
        changes
    }
}

fn compared(
    row: &TestRow,
    figure: &'static str,
    old: &Evidence,
    new: &Evidence,
) -> (TestGrowth, Test) {
    let tolerated = Evidence {
        estimate: old.estimate + SMALLEST.max(old.estimate * TOLERANCE),
        seen: old.seen + SMALLEST.max(old.estimate * TOLERANCE),
        ..*old
    };
    let found = compare(&tolerated.side(), &new.side(), None);
    let is_more = new.estimate > tolerated.estimate;
    let growth = TestGrowth {
        name: row.owner.name.clone(),
        figure,
        old: compare(&old.side(), &new.side(), None).old,
        new: found.new,
        q: 1.0,
    };
    let p = if is_more { found.p } else { 1.0 };
    (
        growth,
        Test {
            p,
            least: found.least,
        },
    )
}
