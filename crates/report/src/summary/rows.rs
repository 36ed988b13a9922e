//! The rows of a summary.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;
use nthbyte_profile::model::Lifetime;
use serde::Serialize;

use super::{By, NO_FILE, NO_STACK, NO_TYPE, processes};
use crate::aggregate::{Aggregate, ByLifetime};
use crate::estimate::Estimate;
use crate::fold;
use crate::inclusive::{self, KeyTotals, Sum};

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
    /// Own bytes that survived the first collection and were freed later.
    pub freed: Estimate,
    /// … that survived it and whose end is not recorded (PyPy).
    pub survived: Estimate,
    /// … that were alive at the end.
    pub still_live: Estimate,
    /// Own bytes that did not die young.
    pub survivors: Estimate,
    /// Own bytes that were alive at the summary's moment; `None` if that is not known (PyPy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<Estimate>,
    /// Bytes that it and all it called allocated and that were alive at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_alive: Option<Estimate>,
    /// The sums of its own samples.
    /// With [`By::Process`], the number of the process, which may have several rows: one for each recording.
    #[serde(skip)]
    pub(super) process: usize,
    #[serde(skip)]
    pub(super) own: ByLifetime,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Own bytes.
    #[default]
    Own,
    /// Bytes with those of everything that it called.
    Total,
    /// Own bytes that were alive at the summary's moment.
    Alive,
    /// Own bytes that died young.
    Young,
    /// Own allocations.
    Allocs,
}

/// Name, file and line of a row.
pub(super) type Label = (String, String, u32);

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

/// The rows, largest own bytes first.
pub(super) fn rows(
    profile: &Profile,
    aggregate: &Aggregate,
    by: By,
    alive_is_known: bool,
) -> Vec<Row> {
    let (labels, totals) = match by {
        By::Type => by_type(profile, aggregate),
        By::Process => processes::labelled(profile, &aggregate.processes),
        By::Function | By::Line | By::File => by_frame(profile, &aggregate.stacks, by),
    };
    let whole = aggregate.all.all.bytes.estimate;
    let (estimator, of_alive) = (&aggregate.estimator, &aggregate.of_alive);
    let row = |(process, ((name, file, line), KeyTotals { own, total })): (
        usize,
        (Label, KeyTotals<ByLifetime>),
    )| Row {
        process,
        name,
        file,
        line,
        samples: own.all.samples,
        self_bytes: estimator.bytes(&own.all),
        total_bytes: estimator.bytes(&total.all),
        // Without bytes, only samples of size 0 have rows.
        share: own.all.bytes.estimate / whole.max(f64::MIN_POSITIVE),
        allocations: estimator.allocations(&own.all),
        died_young: estimator.of_bytes(own.of(Lifetime::DiedYoung)),
        total_allocations: estimator.allocations(&total.all),
        total_died_young: estimator.of_bytes(total.of(Lifetime::DiedYoung)),
        freed: estimator.of_bytes(own.of(Lifetime::Freed)),
        survived: estimator.of_bytes(own.of(Lifetime::Survived)),
        still_live: estimator.of_bytes(own.of(Lifetime::StillLive)),
        survivors: estimator.of_bytes(&own.survivors()),
        alive: alive_is_known.then(|| of_alive.of_bytes(&own.alive)),
        total_alive: alive_is_known.then(|| of_alive.of_bytes(&total.alive)),
        own,
    };
    let seen =
        |(_, (_, totals)): &(usize, (Label, KeyTotals<ByLifetime>))| totals.total.all.samples > 0;
    let rows = labels.into_iter().zip(totals).enumerate();
    let mut rows: Vec<Row> = rows.filter(seen).map(row).collect();
    sort(&mut rows, Sort::Own);
    rows
}

/// Sorts rows, largest first.
pub(super) fn sort(rows: &mut [Row], sort: Sort) {
    let size = |row: &Row| match sort {
        Sort::Own => row.self_bytes.estimate,
        Sort::Total => row.total_bytes.estimate,
        Sort::Alive => row.own.alive.estimate,
        Sort::Young => row.died_young.estimate,
        Sort::Allocs => row.allocations.estimate,
    };
    let sizes = |row: &Row| [size(row), row.self_bytes.estimate, row.total_bytes.estimate];
    rows.sort_by(|one, other| {
        let pairs = sizes(other).into_iter().zip(sizes(one));
        let largest_first = pairs.fold(Ordering::Equal, |order, (other, one)| {
            order.then(other.total_cmp(&one))
        });
        let label = |row: &Row| (row.name.clone(), row.file.clone(), row.line);
        largest_first.then_with(|| label(one).cmp(&label(other)))
    });
}

fn by_type(profile: &Profile, aggregate: &Aggregate) -> (Vec<Label>, Vec<KeyTotals<ByLifetime>>) {
    let mut labels = Labels::new();
    let mut totals: Vec<KeyTotals<ByLifetime>> = Vec::new();
    for (names, of_type) in profile.types.iter().zip(&aggregate.types) {
        let name = match names.name.as_str() {
            "" => NO_TYPE,
            name => name,
        };
        let number = labels.number(name, || (name.to_owned(), String::new(), 0));
        if totals.len() <= number as usize {
            totals.push(KeyTotals::default());
        }
        totals[number as usize].own.add(of_type);
        totals[number as usize].total.add(of_type);
    }
    (labels.labels, totals)
}

/// The rows of functions, lines or files, and the row of samples without a frame.
pub(super) fn by_frame<T: Sum>(
    profile: &Profile,
    stacks: &[T],
    by: By,
) -> (Vec<Label>, Vec<KeyTotals<T>>) {
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
                let name = match function.file.as_str() {
                    "" if fold::is_name(&function.name) => &function.name,
                    "" => NO_FILE,
                    file => file,
                };
                let number = *files.entry(name).or_insert(next);
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
