//! The differences between two profiles, and whether they are significant.
//!
//! Each side has one run or several. A run is a profile, of one process or of a family of them. Rows of the old side are
//! matched with the new one's (`matching`), the sums over the samples of each are compared
//! ([`crate::statistics::difference`]), and of the rows whose difference passes, at most a part [`RATE`] is expected to have
//! passed by chance ([`crate::statistics::discovery`]).

mod counted;
mod limit;
mod matching;
mod page;
mod per_measure;
mod render;
mod runs;
mod sensitivity;
mod sides;

use std::collections::BTreeMap;

use nthbyte_profile::Profile;
use serde::Serialize;

pub use limit::{GrowthLimit, LimitError, LimitOutcome};
pub use matching::Folder;
pub use page::write_page;
pub use per_measure::PerMeasure;
pub use runs::Measure;
pub use sensitivity::Sensitivity;
pub use sides::SideFacts;

use crate::estimate::Estimate;
use crate::statistics::difference::{self, Side};
use crate::statistics::discovery::{self, Test};
use crate::statistics::spread::Spread;
use crate::summary::By;
use matching::{Matching, RowKey};
use runs::Run;
use sides::{Pair, Sides};

/// The false discovery rate: for the rows that are reported to differ, and for the totals.
pub const RATE: f64 = 0.05;

/// The settings of a comparison.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// What a row stands for.
    pub by: By,
    /// Whether a function's value includes the functions that it called.
    pub inclusive: bool,
    /// Pairs of equal folders: one of the old side, one of the new side.
    pub prefixes: Vec<(String, String)>,
    /// What [`Diff::check`] checks.
    pub limits: Vec<GrowthLimit>,
}

/// A comparison. docs/diff.md describes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// What the rows stand for.
    pub by: By,
    /// Whether a function's value includes the functions that it called.
    pub inclusive: bool,
    /// The old side.
    pub old: SideFacts,
    /// The new side.
    pub new: SideFacts,
    /// The false discovery rate.
    pub rate: f64,
    /// Whether every allocation was recorded, on both sides.
    pub exact: bool,
    /// The measures that both sides know.
    pub measures: Vec<Measure>,
    /// The changes of the sums over all samples.
    pub totals: BTreeMap<Measure, Change>,
    /// For each measure, which change of a row could have been found; measures without a row on the old side are absent, and so
    /// are all if the differences are exact.
    pub sensitivity: BTreeMap<Measure, Sensitivity>,
    /// Folders of the old side that were matched with folders of the new side.
    pub folders: Vec<Folder>,
    /// Files of the old side that were matched with files of another name.
    pub renamed: Vec<Folder>,
    /// The number of rows that were matched although their line or file changed.
    pub moved: usize,
    /// Remarks about all values.
    pub notes: Vec<String>,
    /// The measure that orders the rows: see [`Diff::sort`].
    pub what: Measure,
    /// The number of rows that differ significantly in that measure.
    pub significant_rows: usize,
    /// The rows.
    pub rows: Vec<DiffRow>,
    /// The number of rows that [`Diff::truncate`] removed.
    pub rows_left_out: usize,
    #[serde(skip)]
    limits: Vec<GrowthLimit>,
}

/// A row of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct DiffRow {
    /// Function, file or type, as on the new side.
    pub name: String,
    /// Source file; empty if there is none.
    pub file: String,
    /// Line: the function's definition, or the line that ran; 0 if there is none.
    pub line: u32,
    /// The place on the old side, if it differs.
    pub old_place: Option<SourcePlace>,
    /// The side with samples of this row, if only one side has them.
    pub only: Option<Which>,
    /// The change in each measure.
    pub changes: PerMeasure<Change>,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourcePlace {
    /// File.
    pub file: String,
    /// Line; 0 if there is none.
    pub line: u32,
}

/// One of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The old one.
    Old,
    /// The new one.
    New,
}

/// The change in one measure.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The old side: mean over its runs.
    pub old: Estimate,
    /// The new side: mean over its runs.
    pub new: Estimate,
    /// The new value minus the old value.
    pub difference: Estimate,
    /// The difference as a part of the old estimate; `None` if that is 0.
    pub relative: Option<f64>,
    /// The probability of at least this difference by chance.
    pub p: f64,
    /// The smallest false discovery rate at which the difference passes.
    pub q: f64,
    /// Whether it passes at [`RATE`].
    pub significant: bool,
    /// The values from which the change was computed: of the totals, and of the rows that a limit may mean.
    #[serde(skip)]
    evidence: Option<Box<Evidence>>,
}

/// A change as it is compared with others: there is one for each row, in one measure after another.
#[derive(Debug)]
struct Compared {
    change: Change,
    evidence: Evidence,
}

#[derive(Clone, Copy, Debug)]
struct Evidence {
    old: Side,
    new: Side,
    spread: Option<Spread>,
    least: f64,
}

impl Compared {
    fn of(old: Side, new: Side, spread: Option<Spread>) -> Self {
        let found = difference::compare(&old, &new, spread.as_ref());
        let change = Change {
            old: found.old,
            new: found.new,
            difference: found.difference,
            relative: (found.old.estimate > 0.0)
                .then(|| found.difference.estimate / found.old.estimate),
            p: found.p,
            q: 1.0,
            significant: false,
            evidence: None,
        };
        let evidence = Evidence {
            old,
            new,
            spread,
            least: found.least,
        };
        Self { change, evidence }
    }

    fn with_evidence(self) -> Change {
        Change {
            evidence: Some(Box::new(self.evidence)),
            ..self.change
        }
    }
}

impl Change {
    /// The difference between the new value and the old value multiplied by this factor.
    ///
    /// # Panics
    /// If it is a row that no limit means.
    fn beyond(&self, factor: f64) -> Estimate {
        let evidence = self.evidence.as_deref().expect("a limit means it");
        let old = evidence.old.scaled(factor);
        difference::compare(&old, &evidence.new, evidence.spread.as_ref()).difference
    }
}

impl Diff {
    /// Compares two sides, each of one run or several. Rows are in the order of the first
    /// measure that is known.
    ///
    /// # Panics
    /// If a side is empty.
    #[must_use]
    pub fn of(old: &[Profile], new: &[Profile], options: &DiffOptions) -> Self {
        assert!(
            !old.is_empty() && !new.is_empty(),
            "a side without a profile"
        );
        let runs = |profiles: &[Profile]| -> Vec<Run> {
            let run = |profile: &Profile| Run::of(profile, options.by, options.inclusive);
            profiles.iter().map(run).collect()
        };
        let mut sides = Sides {
            old: runs(old),
            new: runs(new),
        };
        let matching = Matching::of_profiles(old, new, &options.prefixes);
        let known = |measure: &Measure| sides.all().all(|run| run.known[*measure as usize]);
        let measures: Vec<Measure> = Measure::ALL.into_iter().filter(known).collect();
        let mut pairs = sides.take_pairs(&matching);
        let named = |pair: &mut Pair| DiffRow::named(pair, measures.len());
        let mut rows: Vec<DiffRow> = pairs.iter_mut().map(named).collect();
        let mut sensitivity = BTreeMap::new();
        for &measure in &measures {
            let mut compared = sides.changes(&pairs, measure);
            let tests = judge(&mut compared);
            let found = Sensitivity::of(&compared, measure, tests);
            sensitivity.extend(found.map(|found| (measure, found)));
            for (row, compared) in rows.iter_mut().zip(compared) {
                let is_limited = options.limits.iter().any(|limit| limit.may_mean(row));
                let change = match is_limited {
                    true => compared.with_evidence(),
                    false => compared.change,
                };
                row.changes.push(measure, change);
            }
        }
        let mut totals: Vec<Compared> = measures.iter().map(|of| sides.total(*of)).collect();
        judge(&mut totals);
        let totals = totals.into_iter().map(Compared::with_evidence);
        let totals = measures.iter().copied().zip(totals).collect();
        let exact = sides.all().all(|run| run.exact);
        if exact && sides.all().count() == 2 {
            sensitivity.clear();
        }
        let mut diff = Self {
            by: options.by,
            inclusive: options.inclusive,
            notes: sides::notes(old, new, &sides, &measures),
            old: SideFacts::of(old, &sides.old),
            new: SideFacts::of(new, &sides.new),
            rate: RATE,
            exact,
            totals,
            sensitivity,
            folders: matching.folders,
            renamed: matching.renamed,
            moved: rows.iter().filter(|row| row.old_place.is_some()).count(),
            what: Measure::Bytes,
            significant_rows: 0,
            rows,
            rows_left_out: 0,
            measures,
            limits: options.limits.clone(),
        };
        diff.sort(diff.measures.first().copied().unwrap_or_default());
        diff
    }

    /// Puts the rows in the order of a measure: first those that differ significantly, each part by
    /// the size of the difference.
    pub fn sort(&mut self, what: Measure) {
        self.what = what;
        let of = |row: &DiffRow| {
            let change = row.changes.get(what);
            change.map_or((false, 0.0), |change| {
                (change.significant, change.difference.estimate.abs())
            })
        };
        self.rows.sort_by(|one, other| {
            let ((one_passes, one_size), (other_passes, other_size)) = (of(one), of(other));
            let largest_first = other_size.total_cmp(&one_size);
            let first = other_passes.cmp(&one_passes).then(largest_first);
            first.then_with(|| {
                let label = (&one.name, &one.file, one.line);
                label.cmp(&(&other.name, &other.file, other.line))
            })
        });
        self.significant_rows = self.rows.iter().filter(|row| of(row).0).count();
    }

    /// Keeps the first rows only.
    pub fn truncate(&mut self, rows: usize) {
        self.rows_left_out += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
    }
}

impl DiffRow {
    /// Takes the names out of a pair.
    fn named(pair: &mut Pair, measures: usize) -> Self {
        let shown = |key: &RowKey| {
            if key.line > 0 {
                key.line
            } else {
                key.first_line
            }
        };
        let (key, old, only) = match (pair.old_key.take(), pair.new_key.take()) {
            (None, Some(new)) => (new, None, Some(Which::New)),
            (Some(old), Some(new)) => (new, Some(old), None),
            (Some(old), None) => (old, None, Some(Which::Old)),
            (None, None) => unreachable!("a pair has a key"),
        };
        let moved = old.filter(|old| *old != key);
        Self {
            line: shown(&key),
            old_place: moved.map(|old| SourcePlace {
                line: shown(&old),
                file: old.file,
            }),
            name: key.name,
            file: key.file,
            only,
            changes: PerMeasure::with_capacity(measures),
        }
    }
}

/// Decides which of these changes are significant, with the false discovery rate controlled over all of
/// them. Returns how many could have been.
fn judge(changes: &mut [Compared]) -> usize {
    // A row that is 0 on both sides is not a test.
    let is_there =
        |of: &&mut Compared| of.change.old.estimate > 0.0 || of.change.new.estimate > 0.0;
    let changes: Vec<&mut Compared> = changes.iter_mut().filter(is_there).collect();
    let test = |of: &&mut Compared| Test {
        p: of.change.p,
        least: of.evidence.least,
    };
    let tests: Vec<Test> = changes.iter().map(test).collect();
    let (rates, number) = discovery::adjust(&tests, RATE);
    for (Compared { change, .. }, q) in changes.into_iter().zip(rates) {
        change.q = q;
        change.significant = q <= RATE && change.difference.estimate != 0.0;
    }
    number
}
