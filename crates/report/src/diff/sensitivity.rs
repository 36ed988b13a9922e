//! Which change a comparison could have found.

use serde::Serialize;

use super::{Compared, Measure, RATE};
use crate::statistics::difference::{self, Side};

/// A growth of less than this is found: no advice is needed.
const FINE: f64 = 0.2;

/// A growth of more than this factor counts as none that could be found.
const LARGEST: f64 = 100.0;

/// No shorter period is proposed, in bytes.
const SHORTEST: f64 = 512.0;

/// The growth of a row from which on it is found in at least half of all such comparisons. A smaller one cannot be told
/// from chance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The row's old value: half of the sum of all rows is in rows that are at least as large.
    pub row: f64,
    /// The growth, as a part of it; `None` if not even a hundredfold value would be found.
    pub growth: Option<f64>,
    /// The growth with three runs of each side, if there was one of each, and they differ by nothing but sampling.
    pub with_three_runs: Option<f64>,
    /// The period that would find less, in bytes, and what it would find.
    pub with_period: Option<(u64, f64)>,
}

impl Sensitivity {
    /// `tests`: how many rows could have passed. `period`: the mean distance between samples in bytes, if that can be chosen.
    pub(super) fn of(changes: &[Compared], measure: Measure, tests: usize) -> Option<Self> {
        let Compared { change, evidence } = typical(changes)?;
        let limit = RATE / tests.max(1) as f64;
        let found = |side: &dyn Fn(&Side) -> Side| {
            let (old, new) = (side(&evidence.old), side(&evidence.new));
            least_growth(|growth| {
                let grown = old.under(new.unit).grown(1.0 + growth);
                let grown = Side {
                    mean: grown.mean,
                    ..new
                };
                difference::compare(&old, &grown, evidence.spread.as_ref()).p <= limit
            })
        };
        let growth = found(&|side| *side);
        let mut this = Self {
            row: change.old.estimate,
            growth,
            with_three_runs: None,
            with_period: None,
        };
        if growth.is_some_and(|growth| growth <= FINE) {
            return Some(this);
        }
        let is_finer = |other: &f64| growth.is_none_or(|growth| *other < 0.9 * growth);
        if evidence.old.runs == 1 && evidence.new.runs == 1 {
            this.with_three_runs = found(&|side| side.finer(3.0)).filter(is_finer);
        }
        let sampled = !evidence.old.exact && !evidence.new.exact;
        if sampled && measure != Measure::Cpu {
            let period = |side: &Side| side.unit * f64::from(side.runs) / measure.halves();
            let now = period(&evidence.old).max(period(&evidence.new));
            let mut every = 2_f64.powf((now / 4.0).log2().floor());
            while every >= SHORTEST {
                let with = found(&|side| side.finer((period(side) / every).max(1.0)));
                if let Some(growth) = with.filter(is_finer) {
                    this.with_period = Some((every as u64, growth));
                    if growth <= FINE {
                        break;
                    }
                }
                every /= 4.0;
            }
        }
        Some(this)
    }
}

/// The row that half of the sum of all rows is at least as large as.
fn typical(changes: &[Compared]) -> Option<&Compared> {
    let old = |of: &Compared| of.change.old.estimate;
    let mut changes: Vec<&Compared> = changes.iter().filter(|of| old(of) > 0.0).collect();
    changes.sort_by(|one, other| old(other).total_cmp(&old(one)));
    let all: f64 = changes.iter().map(|of| old(of)).sum();
    let mut sum = 0.0;
    changes.into_iter().find(|of| {
        sum += old(of);
        sum >= all / 2.0
    })
}

/// The least growth that is found, to 1 % of it.
fn least_growth(is_found: impl Fn(f64) -> bool) -> Option<f64> {
    let (mut low, mut high) = (1e-4, LARGEST);
    if !is_found(high) {
        return None;
    }
    while high > 1.01 * low {
        let middle = (low * high).sqrt();
        if is_found(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}
