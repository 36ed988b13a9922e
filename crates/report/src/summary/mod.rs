//! The summary: allocated bytes and time by function, line, file or type.

mod processes;
mod render;
mod time;

pub use processes::ProcessSummary;
pub(crate) use render::{place, wrap};
pub use time::{Time, TimeRow, Unit};

use std::collections::HashMap;
use std::hash::Hash;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{LostKind, NodeId};
use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::Lifetime;
use serde::Serialize;

use crate::aggregate::{Aggregate, Split};
use crate::estimate::{Estimate, Totals};
use crate::inclusive::{self, KeyTotals, Sum};

/// The kind of the rows of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A function.
    #[default]
    Function,
    /// A line of a function.
    Line,
    /// A source file.
    File,
    /// The type of the allocated objects.
    Type,
    /// A process.
    Process,
}

/// The name of the row for allocations without a Python frame.
pub const NO_STACK: &str = "[no Python frame]";

/// The name of the row for functions without a file.
pub const NO_FILE: &str = "[no file]";

/// The name of the row for objects of unknown type.
pub const NO_TYPE: &str = "[unknown type]";

/// A summary. docs/summary-json.md describes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The kind of the rows.
    pub by: By,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Interpreter and version.
    pub interpreter: String,
    /// Number of the process; of the first, if there are several.
    pub pid: u32,
    /// The processes, in the order in which they started.
    pub processes: Vec<ProcessSummary>,
    /// Start of the session: nanoseconds since 1970 UTC.
    pub started_unix_nanos: u64,
    /// Length of the session, in nanoseconds.
    pub duration_nanos: u64,
    /// Mean distance between samples, in bytes; the shortest, if there were several.
    pub period: u64,
    /// All mean distances of the session, the shortest first.
    pub periods: Vec<u64>,
    /// How the distances were drawn.
    pub distances: Distances,
    /// How samples were taken.
    pub method: String,
    /// Number of allocation samples.
    pub samples: u64,
    /// Number of allocation samples that the agent had to drop.
    pub lost: u64,
    /// Number of all other events that the agent had to drop, time samples among them.
    pub lost_other: u64,
    /// Bytes allocated in total: the agent's count if it is complete, else the estimate.
    pub bytes_allocated: u64,
    /// Whether `bytes_allocated` is the agent's count.
    pub bytes_counted: bool,
    /// Bytes of all samples, in total and by lifetime.
    pub all: Everything,
    /// Work of the garbage collector.
    pub collections: Collections,
    /// The largest resident set, in bytes: the kernel's own figure. Of several processes, the largest sum at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<u64>,
    /// Whether the session ended normally.
    pub complete: bool,
    /// The agent's remarks.
    pub notes: Vec<String>,
    /// The parts of the file that could not be read.
    pub damage: Vec<DamageNote>,
    /// The estimate for one function (file, type) without any sample.
    pub unlisted: Estimate,
    /// The rows, largest own bytes first.
    pub rows: Vec<Row>,
    /// Number of rows that [`Summary::truncate`] removed.
    pub rows_left_out: usize,
    /// Figures from the time samples.
    pub time: Time,
}

/// Figures of all samples together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Everything {
    /// Bytes allocated, estimated from the samples.
    pub bytes: Estimate,
    /// Allocations.
    pub allocations: Estimate,
    /// Bytes of objects that died young.
    pub died_young: Estimate,
    /// … that survived the first collection and were freed later.
    pub freed: Estimate,
    /// … that survived it and whose end is not recorded (PyPy).
    pub survived: Estimate,
    /// … that were alive at the end.
    pub still_live: Estimate,
}

/// Work of the garbage collector.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Collections {
    /// Number of collections. Each step of a major collection counts as one.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub duration_nanos: u64,
}

/// Part of the file that could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct DamageNote {
    /// Byte offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// One row of a summary.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Function, file or type.
    pub name: String,
    /// Source file; empty if there is none.
    pub file: String,
    /// Line: the function's definition, or the line that ran; 0 if there is none.
    pub line: u32,
    /// Samples that it allocated itself.
    pub samples: u64,
    /// Bytes that it allocated itself.
    pub self_bytes: Estimate,
    /// Bytes that it and all it called allocated.
    pub total_bytes: Estimate,
    /// Own bytes, as a part of all bytes.
    pub share: f64,
    /// Own allocations.
    pub allocations: Estimate,
    /// Own bytes that died young.
    pub died_young: Estimate,
    /// Allocations that it and all it called made.
    pub total_allocations: Estimate,
    /// Bytes that it and all it called allocated and that died young.
    pub total_died_young: Estimate,
}

/// Name, file and line of a row.
type Label = (String, String, u32);

impl Summary {
    /// Computes a summary with all its rows.
    #[must_use]
    pub fn of(profile: &Profile, by: By) -> Self {
        let aggregate = Aggregate::of(profile);
        let estimator = &aggregate.estimator;
        let by_process = processes::totals(profile, &aggregate);
        let lifetime =
            |lifetime: Lifetime| estimator.bytes(&aggregate.lifetimes[lifetime as usize]);
        let all = Everything {
            bytes: estimator.bytes(&aggregate.all),
            allocations: estimator.allocations(&aggregate.all),
            died_young: lifetime(Lifetime::DiedYoung),
            freed: lifetime(Lifetime::Freed),
            survived: lifetime(Lifetime::Survived),
            still_live: lifetime(Lifetime::StillLive),
        };
        let lost = |of_samples: bool| {
            let kinds = profile.lost.iter();
            let kinds = kinds.filter(|(kind, _)| (*kind == LostKind::Allocations) == of_samples);
            kinds.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count))
        };
        let meta = &profile.meta;
        let counted = profile.allocated;
        Self {
            by,
            command: meta.command.clone(),
            interpreter: meta.interpreter.clone(),
            pid: meta.pid,
            processes: processes::of(profile, &by_process, estimator),
            started_unix_nanos: meta.started_unix_nanos,
            duration_nanos: profile.end.0,
            period: profile.periods()[0],
            periods: profile.periods(),
            distances: distances(profile),
            method: meta.method().to_owned(),
            samples: aggregate.all.samples,
            lost: lost(true),
            lost_other: lost(false),
            bytes_allocated: counted.unwrap_or(all.bytes.estimate as u64),
            bytes_counted: counted.is_some(),
            all,
            collections: collections(profile),
            peak_rss: processes::peak_rss(&profile.memory),
            complete: profile.complete,
            notes: meta.notes.clone(),
            damage: damage(profile),
            unlisted: estimator.bytes(&Totals::default()),
            rows: rows(profile, &aggregate, &by_process, by),
            rows_left_out: 0,
            time: Time::of(profile, by),
        }
    }

    /// Removes all rows except the first ones.
    pub fn truncate(&mut self, rows: usize) {
        self.rows_left_out += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
        self.time.truncate(rows);
    }

    /// Whether there are only time samples, as in a file imported from VMProf.
    #[must_use]
    pub fn is_of_time_only(&self) -> bool {
        self.samples == 0 && self.time.samples > 0
    }
}

fn collections(profile: &Profile) -> Collections {
    let mut sum = Collections::default();
    for collection in &profile.collections {
        // Each step of a major collection counts as one.
        if collection.kind != nthbyte_profile::event::CollectionKind::Major {
            sum.count += 1;
            sum.duration_nanos = sum.duration_nanos.saturating_add(collection.duration.0);
        }
    }
    sum
}

/// How the distances of allocation samples were drawn. With several ways, one that needs
/// an estimate comes first.
fn distances(profile: &Profile) -> Distances {
    let samplings = profile.allocation_samplings();
    let mut distances = samplings.iter().map(|sampling| sampling.distances);
    let first = distances.next().unwrap_or(profile.meta.distances());
    if first == Distances::Every {
        return distances.find(|&of| of != first).unwrap_or(first);
    }
    first
}

fn damage(profile: &Profile) -> Vec<DamageNote> {
    let note = |damage: &nthbyte_profile::model::Damage| DamageNote {
        offset: damage.offset,
        what: damage.what.clone(),
    };
    profile.damage.iter().map(note).collect()
}

/// Labels and their numbers. Equal labels have one number.
struct Labels<K> {
    numbers: HashMap<K, u32, foldhash::fast::RandomState>,
    labels: Vec<Label>,
}

impl<K: Hash + Eq> Labels<K> {
    fn new() -> Self {
        Self {
            numbers: HashMap::default(),
            labels: Vec::new(),
        }
    }

    fn number(&mut self, key: K, label: impl FnOnce() -> Label) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.labels.push(label());
            self.labels.len() as u32 - 1
        })
    }
}

fn rows(profile: &Profile, aggregate: &Aggregate, by_process: &[Split], by: By) -> Vec<Row> {
    let (labels, totals) = match by {
        By::Type => by_type(profile, aggregate),
        By::Process => processes::labelled(profile, by_process),
        By::Function | By::Line | By::File => by_frame(profile, &aggregate.stacks, by),
    };
    let whole = aggregate.all.bytes.estimate;
    let estimator = &aggregate.estimator;
    let row = |((name, file, line), totals): (Label, KeyTotals<Split>)| {
        let (own, total) = (totals.own.all(), totals.total.all());
        Row {
            name,
            file,
            line,
            samples: own.samples,
            self_bytes: estimator.bytes(&own),
            total_bytes: estimator.bytes(&total),
            // Without bytes, only samples of size 0 have rows.
            share: own.bytes.estimate / whole.max(f64::MIN_POSITIVE),
            allocations: estimator.allocations(&own),
            died_young: estimator.bytes(&totals.own.died_young),
            total_allocations: estimator.allocations(&total),
            total_died_young: estimator.bytes(&totals.total.died_young),
        }
    };
    let seen = |(_, totals): &(Label, KeyTotals<Split>)| totals.total.all().samples > 0;
    let mut rows: Vec<Row> = labels
        .into_iter()
        .zip(totals)
        .filter(seen)
        .map(row)
        .collect();
    rows.sort_by(|one, other| {
        let size = |row: &Row| (row.self_bytes.estimate, row.total_bytes.estimate);
        let largest_first = size(other).partial_cmp(&size(one));
        let label = |row: &Row| (row.name.clone(), row.file.clone(), row.line);
        largest_first
            .unwrap_or(std::cmp::Ordering::Equal)
            .then_with(|| label(one).cmp(&label(other)))
    });
    rows
}

fn by_type(profile: &Profile, aggregate: &Aggregate) -> (Vec<Label>, Vec<KeyTotals<Split>>) {
    let mut labels = Labels::new();
    let mut totals: Vec<KeyTotals<Split>> = Vec::new();
    for (names, lifetimes) in profile.types.iter().zip(&aggregate.types) {
        let name = match names.name.as_str() {
            "" => NO_TYPE,
            name => name,
        };
        let number = labels.number(name, || (name.to_owned(), String::new(), 0));
        if totals.len() <= number as usize {
            totals.push(KeyTotals::default());
        }
        let mut own = Split::default();
        for (&lifetime, sums) in Lifetime::ALL.iter().zip(lifetimes) {
            own.of_lifetime(lifetime).add(sums);
        }
        totals[number as usize].own.add(&own);
        totals[number as usize].total.add(&own);
    }
    (labels.labels, totals)
}

/// The rows of functions, lines or files, and the row of samples without a frame.
fn by_frame<T: Sum>(profile: &Profile, stacks: &[T], by: By) -> (Vec<Label>, Vec<KeyTotals<T>>) {
    let mut labels: Labels<(u32, u32)> = Labels::new();
    let mut files: HashMap<&str, u32, foldhash::fast::RandomState> = HashMap::default();
    let mut keys = Vec::with_capacity(profile.frames.len());
    for frame in &profile.frames {
        let function = &profile.functions[frame.function as usize];
        let file = || function.file.clone();
        keys.push(match by {
            By::Line => labels.number((frame.function, frame.line), || {
                (function.name.clone(), file(), frame.line)
            }),
            By::File => {
                let next = files.len() as u32;
                let number = *files.entry(&function.file).or_insert(next);
                let name = if function.file.is_empty() {
                    NO_FILE
                } else {
                    &function.file
                };
                labels.number((number, 0), || (name.to_owned(), file(), 0))
            }
            By::Function | By::Type | By::Process => labels.number((frame.function, 0), || {
                (function.name.clone(), file(), function.first_line)
            }),
        });
    }
    let mut labels = labels.labels;
    let mut totals = inclusive::by_key(profile, stacks, &keys, labels.len());
    let none = stacks[NodeId::ROOT.index()];
    labels.push((NO_STACK.to_owned(), String::new(), 0));
    totals.push(KeyTotals {
        own: none,
        total: none,
    });
    (labels, totals)
}
