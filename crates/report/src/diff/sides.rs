//! The two sides of a comparison: their runs, the values of each row in each run, and remarks about
//! both.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::event::LostKind;
use nthbyte_profile::{Profile, Source};
use serde::Serialize;

use super::matching::{Matching, RowKey};
use super::runs::{Cell, Measure, Run};
use super::{Compared, counted};
use crate::estimate::{self, Estimate, Moments};
use crate::inclusive::{self, Sum};
use crate::periods;
use crate::statistics::difference::Side;
use crate::statistics::spread::{Prior, Scatter, Spread};
use crate::text;

/// The properties of a side.
#[derive(Clone, Debug, Serialize)]
pub struct SideFacts {
    /// Number of runs.
    pub runs: usize,
    /// Number of profiles: more than runs where a run has several processes.
    pub profiles: usize,
    /// The program and its arguments, of the first run.
    pub command: Vec<String>,
    /// Interpreter and version, of the first run.
    pub interpreter: String,
    /// Length of a session in nanoseconds: mean over the runs.
    pub duration_nanos: u64,
    /// Allocation samples of all runs together.
    pub samples: u64,
    /// Mean distance between samples, in bytes; the longest of all runs. Of a run whose period changed, the one that would
    /// give the same intervals.
    pub period: u64,
    /// All periods, in words.
    #[serde(skip)]
    pub periods_text: String,
    /// Bytes allocated: mean over the runs. Whole blocks, if `bytes_counted`; else estimated.
    pub bytes_allocated: u64,
    /// Whether the heap counted them all: there is no native memory beside.
    pub bytes_counted: bool,
}

impl SideFacts {
    pub(super) fn of(profiles: &[Profile], runs: &[Run]) -> Self {
        let number = runs.len() as u64;
        let whole = |run: &Run| run.counted.filter(|_| run.native.is_none());
        let counted: Option<Vec<u64>> = runs.iter().map(whole).collect();
        let mean = |values: Vec<u64>| values.iter().map(|value| value / number).sum();
        let estimates = || {
            let bytes = runs.iter().map(|run| run.all.of(Measure::Bytes).estimate);
            bytes.map(|bytes| bytes as u64).collect()
        };
        let longest = runs.iter().map(|run| run.period).fold(1.0, f64::max);
        Self {
            runs: runs.len(),
            profiles: profiles.iter().map(|run| run.processes.len()).sum(),
            command: profiles[0].meta.command.clone(),
            interpreter: profiles[0].meta.interpreter.clone(),
            duration_nanos: mean(runs.iter().map(|run| run.duration_nanos).collect()),
            samples: runs.iter().map(|run| run.samples).sum(),
            period: longest as u64,
            periods_text: periods::described_together(profiles),
            bytes_counted: counted.is_some(),
            bytes_allocated: mean(counted.unwrap_or_else(estimates)),
        }
    }
}

/// A row of both sides.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) old_key: Option<RowKey>,
    pub(super) new_key: Option<RowKey>,
    /// The value of each run.
    pub(super) old: Vec<Cell>,
    pub(super) new: Vec<Cell>,
}

impl Pair {
    pub(super) const fn of_totals(old: Vec<Cell>, new: Vec<Cell>) -> Self {
        Self {
            old_key: None,
            new_key: None,
            old,
            new,
        }
    }
}

/// The runs of both sides.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) old: Vec<Run>,
    pub(super) new: Vec<Run>,
}

impl Sides {
    pub(super) fn all(&self) -> impl Iterator<Item = &Run> {
        self.old.iter().chain(&self.new)
    }

    /// All rows that have samples, taken out of the runs.
    pub(super) fn take_pairs(&mut self, matching: &Matching) -> Vec<Pair> {
        let (old_runs, new_runs) = (self.old.len(), self.new.len());
        let mut numbers: HashMap<RowKey, usize, RandomState> = HashMap::default();
        let mut pairs: Vec<Pair> = Vec::new();
        let mut pair = |pairs: &mut Vec<Pair>, key: RowKey| {
            *numbers.entry(key).or_insert_with(|| {
                let pair = Pair {
                    old_key: None,
                    new_key: None,
                    old: vec![Cell::default(); old_runs],
                    new: vec![Cell::default(); new_runs],
                };
                inclusive::push(pairs, pair);
                pairs.len() - 1
            })
        };
        for (number, run) in self.old.iter_mut().enumerate() {
            for (key, cell) in std::mem::take(&mut run.rows) {
                let at = pair(&mut pairs, matching.translate(&key));
                let row = &mut pairs[at];
                row.old[number].add(&cell);
                // With several runs, the choice must not depend on the order of the table.
                if row.old_key.as_ref().is_none_or(|known| key < *known) {
                    row.old_key = Some(key);
                }
            }
        }
        for (number, run) in self.new.iter_mut().enumerate() {
            for (key, cell) in std::mem::take(&mut run.rows) {
                let at = pair(&mut pairs, key.clone());
                pairs[at].new[number].add(&cell);
                pairs[at].new_key = Some(key);
            }
        }
        pairs.sort_by(|one, other| {
            let new = one.new_key.cmp(&other.new_key);
            new.then_with(|| one.old_key.cmp(&other.old_key))
        });
        pairs
    }

    /// The change of each row.
    pub(super) fn changes(&self, pairs: &[Pair], measure: Measure) -> Vec<Compared> {
        let degrees = self.degrees();
        let scatters: Vec<Scatter> = match degrees {
            Some(_) => pairs
                .iter()
                .map(|pair| self.scatter(pair, measure))
                .collect(),
            None => Vec::new(),
        };
        let prior = degrees.map(|degrees| Prior::of(&scatters, degrees, self.all().count() as f64));
        let change = |(at, pair): (usize, &Pair)| {
            let spread = prior
                .zip(degrees)
                .map(|(prior, degrees)| prior.spread(&scatters[at], degrees));
            let old = side(&self.old, pair.old.iter(), measure);
            let new = side(&self.new, pair.new.iter(), measure);
            Compared::of(old, new, spread)
        };
        pairs.iter().enumerate().map(change).collect()
    }

    /// The change of the total.
    pub(super) fn total(&self, measure: Measure) -> Compared {
        if measure == Measure::Bytes
            && let Some(change) = counted::total(self)
        {
            return change;
        }
        let cells = |runs: &[Run]| -> Vec<Cell> { runs.iter().map(|run| run.all).collect() };
        let pair = Pair::of_totals(cells(&self.old), cells(&self.new));
        let spread = self.spread(&pair, measure);
        let old = side(&self.old, pair.old.iter(), measure);
        let new = side(&self.new, pair.new.iter(), measure);
        Compared::of(old, new, spread)
    }

    /// The spread of a single row.
    pub(super) fn spread(&self, pair: &Pair, measure: Measure) -> Option<Spread> {
        let degrees = self.degrees()?;
        let scatter = self.scatter(pair, measure);
        Some(Prior::of(&[], degrees, 0.0).spread(&scatter, degrees))
    }

    /// The degrees of freedom of the variance between runs; `None` if each side has one run.
    fn degrees(&self) -> Option<f64> {
        let runs = self.all().count();
        (runs > 2).then(|| (runs - 2) as f64)
    }

    fn scatter(&self, pair: &Pair, measure: Measure) -> Scatter {
        let squares = |cells: &[Cell]| {
            let values = || cells.iter().map(|cell| cell.of(measure).estimate);
            let mean = values().sum::<f64>() / cells.len() as f64;
            values().map(|value| (value - mean).powi(2)).sum::<f64>()
        };
        let all = || {
            pair.old
                .iter()
                .chain(&pair.new)
                .map(|cell| cell.of(measure))
        };
        let number = (pair.old.len() + pair.new.len()) as f64;
        Scatter {
            observed: (squares(&pair.old) + squares(&pair.new)) / (number - 2.0),
            sampling: all().map(|moments| moments.variance).sum::<f64>() / number,
            size: all().map(|moments| moments.estimate).sum::<f64>() / number,
        }
    }
}

/// The mean over the runs of a side.
pub(super) fn side<'a>(
    runs: &[Run],
    cells: impl Iterator<Item = &'a Cell>,
    measure: Measure,
) -> Side {
    let number = runs.len() as f64;
    let mut all = Cell::default();
    cells.for_each(|cell| all.add(cell));
    let of = |measure: Measure| {
        let sum = all.of(measure);
        Moments {
            estimate: sum.estimate / number,
            seen: sum.seen / number,
            variance: sum.variance / number.powi(2),
            third: sum.third / number.powi(3),
        }
    };
    let mean = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / (number * number);
    let unit = match measure {
        Measure::Cpu => mean(|run| run.tick),
        // Half of the samples say what was alive then.
        Measure::Peak => 2.0 * mean(|run| run.period),
        _ => mean(|run| run.period),
    };
    let longest = mean(|run| run.longest_period);
    let typical = match measure {
        Measure::Allocations => {
            estimate::heaviest_allocations(&of(Measure::Bytes), &of(measure), longest)
                .max(mean(|run| run.typical_allocations))
        }
        Measure::Cpu => unit,
        Measure::Peak => 2.0 * longest,
        _ => longest,
    };
    Side {
        mean: of(measure),
        runs: runs.len() as u32,
        unit: unit.max(f64::MIN_POSITIVE),
        typical,
        exact: measure != Measure::Cpu && runs.iter().all(|run| run.exact),
    }
}

/// Remarks that a reader of the values needs.
pub(super) fn notes(
    old: &[Profile],
    new: &[Profile],
    sides: &Sides,
    measures: &[Measure],
) -> Vec<String> {
    let mut notes = Vec::new();
    let all = || old.iter().chain(new);
    let lost: u64 = all()
        .flat_map(|profile| &profile.lost)
        .filter(|(kind, _)| *kind == LostKind::Allocations)
        .fold(0, |sum, (_, count)| sum.saturating_add(*count));
    if lost > 0 {
        notes.push(format!(
            "{}: those beside them stand for them, and intervals are wider",
            text::lost(lost, "sample")
        ));
    }
    let incomplete = all().filter(|profile| !profile.complete).count();
    if incomplete > 0 {
        let are = if incomplete == 1 { "is" } else { "are" };
        notes.push(format!(
            "{incomplete} of the profiles {are} incomplete: the program was killed, or is still running"
        ));
    }
    let damaged = all().filter(|profile| !profile.damage.is_empty()).count();
    if damaged > 0 {
        let are = if damaged == 1 { "is" } else { "are" };
        notes.push(format!(
            "{damaged} of the profiles {are} damaged: nthbyte summary says where"
        ));
    }
    let same = |of: fn(&Profile) -> String| {
        let first = of(&old[0]);
        all().all(|profile| of(profile) == first)
    };
    if !same(|profile| profile.meta.interpreter.clone()) {
        notes.push("the interpreters differ".to_owned());
    }
    // It may have been recorded without a sample.
    let records_native = |profile: &Profile| profile.sources.iter().any(Source::is_native);
    let has_native = |profiles: &[Profile]| profiles.iter().any(records_native);
    if has_native(old) != has_native(new) {
        let (side, as_what) = if has_native(new) {
            ("new", "new")
        } else {
            ("old", "gone")
        };
        notes.push(format!(
            "native memory was recorded on the {side} side only: what it allocated is shown as {as_what}"
        ));
    }
    if measures.contains(&Measure::Bytes) && counted::total(sides).is_some() {
        let has_native = sides.all().any(|run| run.native.is_some());
        let beside = if has_native {
            ", and of native memory as sampled"
        } else {
            ""
        };
        notes.push(format!(
            "the total of bytes is that of whole blocks, as the heap counted them{beside}"
        ));
    }
    let seconds =
        |runs: &[Run]| runs.iter().map(|run| run.duration_nanos).sum::<u64>() / runs.len() as u64;
    let (before, after) = (seconds(&sides.old), seconds(&sides.new));
    notes.push(format!(
        "figures are not scaled to the length of the runs ({} and {}) or to the work that they did",
        text::duration(before),
        text::duration(after)
    ));
    if !measures.contains(&Measure::Alive) && measures.contains(&Measure::Bytes) {
        notes.push("what was alive at the end or at the peak cannot be compared: on PyPy it is not known when an object that survived its first collection was freed".to_owned());
    }
    if measures.contains(&Measure::Cpu) && sides.old.len() + sides.new.len() == 2 {
        notes.push("CPU time differs from run to run by more than its interval: give several runs of each side".to_owned());
    }
    notes
}

/// Whether a value has no error.
pub(super) fn is_certain(estimate: &Estimate) -> bool {
    estimate.low >= estimate.high
}
