//! The values of one run for each row: sums over samples, for each quantity that can be compared.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::event::{LabelSetId, SourceId};
use nthbyte_profile::model::{Function, Lifetime};
use nthbyte_profile::{Profile, Unit};
use serde::Serialize;

use super::counted::Native;
use super::matching::{Borrowed, RowKey};
use crate::estimate::{self, Moments, Totals};
use crate::inclusive::{self, ByKey, ByStack, KeyTotals, Sparse, Sum};
use crate::periods;
use crate::selection::{self, Alive, Moment};
use crate::summary::{By, NO_FILE, NO_LABEL, NO_STACK, NO_TYPE};

/// A quantity that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Bytes allocated.
    #[default]
    Bytes,
    /// Number of allocations.
    Allocations,
    /// Bytes alive at the end.
    Alive,
    /// Bytes alive at the moment with the most live bytes, by the half of the samples that did not find it.
    Peak,
    /// Bytes that died young.
    Young,
    /// CPU time, in seconds.
    Cpu,
}

impl Measure {
    /// All measures, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Bytes,
        Self::Allocations,
        Self::Alive,
        Self::Peak,
        Self::Young,
        Self::Cpu,
    ];

    /// How many parts the samples are in, of which one says how much there was.
    pub(super) const fn halves(self) -> f64 {
        match self {
            Self::Peak => 2.0,
            _ => 1.0,
        }
    }

    /// The name on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Allocations => "allocations",
            Self::Alive => "alive",
            Self::Peak => "peak",
            Self::Young => "young",
            Self::Cpu => "cpu",
        }
    }
}

/// Sums of every measure over some samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell(pub(super) [Moments; Measure::ALL.len()]);

impl Cell {
    pub(super) fn of(&self, measure: Measure) -> &Moments {
        &self.0[measure as usize]
    }

    fn has_samples(&self) -> bool {
        self.0.iter().any(|moments| moments.estimate > 0.0)
    }

    fn of_mut(&mut self, measure: Measure) -> &mut Moments {
        &mut self.0[measure as usize]
    }
}

impl Sum for Cell {
    fn add(&mut self, other: &Self) {
        for (mine, its) in self.0.iter_mut().zip(&other.0) {
            mine.add(its);
        }
    }
}

fn key(by: By, function: &Function, line: u32) -> Borrowed<'_> {
    match (by, function.file.as_str()) {
        (By::File, "") => (NO_FILE, "", 0, 0),
        (By::File, file) => (file, file, 0, 0),
        (By::Line, file) => (&function.name, file, function.first_line, line),
        (By::Function | By::Type | By::Process | By::Label(_), file) => {
            (&function.name, file, function.first_line, 0)
        }
    }
}

/// One run of the program: a profile of one process, or of a family of them.
#[derive(Debug)]
pub(super) struct Run {
    /// The sums that are not 0, by key. A key may be there several times.
    pub(super) rows: Vec<(RowKey, Cell)>,
    pub(super) all: Cell,
    pub(super) known: [bool; Measure::ALL.len()],
    /// Whether every allocation was recorded.
    pub(super) exact: bool,
    /// Mean distance between samples, in bytes; if it changed, the one that would give the same intervals.
    pub(super) period: f64,
    /// The longest one. It determines which changes can be missed.
    pub(super) longest_period: f64,
    /// Allocations that a sample stands for, averaged over allocations.
    pub(super) typical_allocations: f64,
    /// Seconds that a time sample stands for.
    pub(super) tick: f64,
    /// Bytes of blocks that the heap counted, if it counted until the end.
    pub(super) counted: Option<u64>,
    /// Native memory, if it was recorded.
    pub(super) native: Option<Native>,
    pub(super) samples: u64,
    pub(super) duration_nanos: u64,
}

impl Run {
    /// `inclusive`: a function's value includes the functions that it called.
    pub(super) fn of(profile: &Profile, by: By, inclusive: bool) -> Self {
        let tick = tick(profile);
        let mut run = Self {
            rows: Vec::new(),
            all: Cell::default(),
            known: known(profile, tick.is_some()),
            exact: profile.is_exact(),
            period: periods::effective(profile),
            longest_period: periods::longest(profile),
            typical_allocations: 1.0,
            tick: tick.unwrap_or(0.0),
            counted: profile.counted,
            native: native(profile),
            samples: profile.samples.len() as u64,
            duration_nanos: profile.end.0,
        };
        run.add(profile, by, inclusive);
        let all = Totals {
            samples: run.samples,
            bytes: *run.all.of(Measure::Bytes),
            allocations: *run.all.of(Measure::Allocations),
        };
        run.typical_allocations = estimate::typical_allocations(&all, run.longest_period);
        run
    }

    fn add(&mut self, profile: &Profile, by: By, inclusive: bool) {
        let cells = Cells::of(profile, self.tick > 0.0);
        for (_, cell) in cells.stacks.iter() {
            self.all.add(cell);
        }
        let mut add = |key: RowKey, cell: &Cell| {
            if cell.has_samples() {
                inclusive::push(&mut self.rows, (key, *cell));
            }
        };
        if by == By::Type {
            for (type_id, cell) in cells.types.iter() {
                let name = match profile.types[type_id as usize].name.as_str() {
                    "" => NO_TYPE,
                    name => name,
                };
                add(RowKey::named(name), cell);
            }
        } else if by == By::Process {
            for (number, cell) in (1..).zip(&cells.processes) {
                add(RowKey::named(&process_name(number)), cell);
            }
        } else if let By::Label(key) = by {
            let values = profile.label_values(key.as_str());
            for (set, cell) in cells.labels.iter() {
                let value = values.of(LabelSetId(set));
                add(
                    RowKey::named(value.map_or(NO_LABEL, |value| values.values[value])),
                    cell,
                );
            }
        } else {
            add(RowKey::named(NO_STACK), &cells.stacks.of(0));
            let (keys, frames) = keys(profile, by);
            let totals = ByKey::of(profile, cells.stacks, &frames, keys.len());
            for (number, key) in keys.into_iter().enumerate() {
                if let Some(KeyTotals { own, total }) = totals.get(number) {
                    add(key.into(), if inclusive { &total } else { &own });
                }
            }
        }
    }
}

/// The keys of all frames, each once, and the number of each frame's key.
fn keys(profile: &Profile, by: By) -> (Vec<Borrowed<'_>>, Vec<u32>) {
    let mut numbers: HashMap<Borrowed<'_>, u32, RandomState> = HashMap::default();
    let mut keys = Vec::new();
    let number = |frame: &nthbyte_profile::model::Frame| {
        let key = key(by, &profile.functions[frame.function as usize], frame.line);
        *numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        })
    };
    let frames = profile.frames.iter().map(number).collect();
    (keys, frames)
}

/// A process by its place in the order of starts: process numbers differ from run to run.
fn process_name(number: usize) -> String {
    match number {
        1 => "first process".to_owned(),
        number => format!("process {number} by start"),
    }
}

/// The sums of each stack, of each type, of each process and of each label set.
struct Cells {
    stacks: ByStack<Cell>,
    types: Sparse<Cell>,
    processes: Vec<Cell>,
    labels: Sparse<Cell>,
}

impl Cells {
    fn of(profile: &Profile, has_time: bool) -> Self {
        let mut cells = Self {
            stacks: ByStack::new(profile.stacks.len()),
            types: Sparse::new(profile.types.len()),
            processes: vec![Cell::default(); profile.processes.len().max(1)],
            labels: Sparse::new(profile.label_sets.len()),
        };
        cells.add_allocations(profile);
        if has_time {
            cells.add_time(profile);
        }
        cells
    }

    fn add_allocations(&mut self, profile: &Profile) {
        let samples = &profile.samples;
        let peak = selection::peak_of_all(profile).map(Moment::Found);
        let peak = peak.map(|moment| Alive::at(profile, moment));
        let shapes = Totals::of_shapes(profile);
        for id in samples.ids() {
            let totals = &shapes[samples.shape_id(id).0 as usize];
            let at_peak = peak.as_ref().and_then(|alive| alive.totals(id));
            let process = profile.process_of(samples.thread(id));
            let cells = [
                self.stacks.of_mut(samples.stack(id).index()),
                self.types.of_mut(samples.type_id(id).index()),
                &mut self.processes[process.index()],
                self.labels.of_mut(samples.labels(id).index()),
            ];
            for cell in cells {
                cell.of_mut(Measure::Bytes).add(&totals.bytes);
                cell.of_mut(Measure::Allocations).add(&totals.allocations);
                match samples.lifetime(id) {
                    Lifetime::DiedYoung => cell.of_mut(Measure::Young).add(&totals.bytes),
                    Lifetime::StillLive => cell.of_mut(Measure::Alive).add(&totals.bytes),
                    Lifetime::Freed | Lifetime::Survived => {}
                }
                if let Some(totals) = at_peak {
                    cell.of_mut(Measure::Peak).add(&totals.bytes);
                }
            }
        }
    }

    fn add_time(&mut self, profile: &Profile) {
        for sample in &profile.cpu {
            let tick = profile.sampling(sample.sampling).period as f64 / 1e9;
            let moments = Moments {
                estimate: tick,
                seen: 0.0,
                variance: tick * tick,
                third: 2.0 * tick.powi(3),
            };
            let process = profile.process_of(sample.thread);
            for cell in [
                self.stacks.of_mut(sample.stack.index()),
                &mut self.processes[process.index()],
                self.labels.of_mut(sample.labels.index()),
            ] {
                cell.of_mut(Measure::Cpu).add(&moments);
            }
        }
    }
}

fn native(profile: &Profile) -> Option<Native> {
    let samplings = profile.allocation_samplings();
    let is_native = |source: SourceId| profile.sources[source.index()].is_native();
    let has_samples = samplings.iter().any(|of| is_native(of.source));
    // It may have been recorded without a sample.
    let periods = profile
        .samplings
        .iter()
        .filter(|of| of.unit == Unit::Bytes && is_native(of.source));
    let longest = periods.map(|of| of.period.max(1)).max();
    let mut bytes = Moments::default();
    if has_samples {
        let samples = &profile.samples;
        for id in samples.ids() {
            let shape = samples.shape(samples.shape_id(id));
            if is_native(profile.sampling(shape.sampling).source) {
                bytes.add(&Totals::of_sample(profile, shape).bytes);
            }
        }
    }
    longest.map(|longest| Native {
        bytes,
        longest_period: longest as f64,
    })
}

/// The measures that the profile contains.
fn known(profile: &Profile, has_time: bool) -> [bool; Measure::ALL.len()] {
    // A file imported from VMProf is like this.
    let only_time = profile.samples.is_empty() && !profile.cpu.is_empty();
    let ends = selection::lifetimes_are_known(profile);
    Measure::ALL.map(|measure| match measure {
        Measure::Bytes | Measure::Allocations | Measure::Young => !only_time,
        Measure::Alive | Measure::Peak => !only_time && ends,
        Measure::Cpu => has_time,
    })
}

/// Mean number of seconds for each time sample; `None` without time samples, or if unknown.
fn tick(profile: &Profile) -> Option<f64> {
    let hz = profile.time_hz()?;
    (!profile.cpu.is_empty() && hz > 0.0).then(|| 1.0 / hz)
}
