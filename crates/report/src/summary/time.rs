//! The summary of the time samples.

use nthbyte_profile::Profile;
use nthbyte_profile::event::LostKind;
use serde::Serialize;

use super::By;
use super::rows::{ByFrame, OfLabels, OfProcesses, SummaryRow, Table};
use crate::estimate::Estimate;
use crate::time::{self, Time, TimeTotals};

/// Figures from the time samples of a profile. There are no rows by type: time samples have none.
#[derive(Clone, Debug, Serialize)]
pub struct TimeSummary {
    /// Number of time samples.
    pub samples: u64,
    /// Number of time samples that the agent had to drop.
    pub lost: u64,
    /// Samples per second, on average; 0 if it is unknown.
    pub hz: u32,
    /// The unit of `self_time` and `total_time`.
    pub unit: Unit,
    /// The time that all samples stand for.
    pub whole: f64,
    /// The share of the samples whose thread held the GIL; `None` if no sample says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gil_held: Option<f64>,
    /// The rows, largest own time first.
    pub rows: Vec<SummaryRow<RowTime>>,
    /// Number of rows that [`Summary::truncate`](super::Summary::truncate) removed.
    pub rows_left_out: usize,
    #[serde(skip)]
    clock: Time,
}

/// The unit of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Number of time samples, if their period is unknown.
    Samples,
}

/// The time of a row.
#[derive(Clone, Debug, Serialize)]
pub struct RowTime {
    /// Samples in it and in what it called.
    pub total_samples: u64,
    /// Time in its own code.
    pub self_time: Estimate,
    /// Time in it and in what it called.
    pub total_time: Estimate,
    /// Own time, as a part of the whole.
    pub share: f64,
}

impl TimeSummary {
    pub(super) fn of(profile: &Profile, by: By) -> Self {
        let clock = Time::new(profile);
        let lost = profile.lost.iter();
        let lost = lost.filter(|(kind, _)| *kind == LostKind::CpuSamples);
        Self {
            samples: clock.samples,
            lost: lost.fold(0, |sum, (_, count)| sum.saturating_add(*count)),
            hz: clock.hz.map_or(0, |hz| hz.round() as u32),
            unit: match clock.hz {
                Some(_) => Unit::Seconds,
                None => Unit::Samples,
            },
            whole: clock.whole(),
            gil_held: gil_held(profile),
            rows: if by == By::Type || clock.samples == 0 {
                Vec::new()
            } else {
                rows(profile, &clock, by)
            },
            rows_left_out: 0,
            clock,
        }
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.rows_left_out += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
    }

    pub(super) fn clock(&self) -> Time {
        self.clock
    }
}

/// The share of the samples whose thread held the GIL, by their label.
fn gil_held(profile: &Profile) -> Option<f64> {
    let says = profile.label_values("gil");
    let samples = profile.cpu.iter();
    let known: Vec<bool> = samples
        .filter_map(|sample| Some(says.values[says.of(sample.labels)?] == "held"))
        .collect();
    let held = known.iter().filter(|&&is_held| is_held).count();
    (!known.is_empty()).then(|| held as f64 / known.len() as f64)
}

fn rows(profile: &Profile, clock: &Time, by: By) -> Vec<SummaryRow<RowTime>> {
    let table: Box<dyn Table<TimeTotals> + '_> = match by {
        By::Process => Box::new(OfProcesses {
            profile,
            totals: time::processes(profile),
        }),
        By::Label(key) => Box::new(OfLabels::of(profile, &time::labels(profile), key)),
        _ => Box::new(ByFrame::of(profile, time::stacks(profile), by)),
    };
    let row = |row: usize| {
        let totals = table.totals(row).filter(|of| of.total.samples > 0)?;
        let (name, file, line) = table.label(row);
        let figures = RowTime {
            total_samples: totals.total.samples,
            self_time: clock.time(totals.own.time),
            total_time: clock.time(totals.total.time),
            share: clock.share(totals.own.time),
        };
        Some(SummaryRow {
            name: name.into_owned(),
            file: file.to_owned(),
            line,
            samples: totals.own.samples,
            figures,
        })
    };
    let mut rows: Vec<SummaryRow<RowTime>> = (0..table.len()).filter_map(row).collect();
    rows.sort_by(|one, other| {
        let size = |row: &SummaryRow<RowTime>| (row.samples, row.figures.total_samples);
        let largest_first = size(other).cmp(&size(one));
        largest_first.then_with(|| one.label().cmp(&other.label()))
    });
    rows
}
