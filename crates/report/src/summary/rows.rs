//! The rows of a summary.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{LabelSetId, NodeId};
use nthbyte_profile::model::{Function, Lifetime};
use serde::Serialize;

use super::{By, LabelKey, NO_FILE, NO_LABEL, NO_STACK, NO_TYPE};
use crate::aggregate::{Aggregate, ByLifetime};
use crate::estimate::Estimate;
use crate::fold;
use crate::inclusive::{self, ByKey, ByStack, KeyTotals, Sparse, Sum};

/// One row of a summary, with figures of bytes or of time.
#[derive(Clone, Debug, Serialize)]
pub struct SummaryRow<F> {
    /// Function, file or type.
    pub name: String,
    /// Source file; empty if there is none.
    pub file: String,
    /// Line: the function's definition, or the line that ran; 0 if there is none.
    pub line: u32,
    /// Samples of its own.
    pub samples: u64,
    /// What they stand for.
    #[serde(flatten)]
    pub figures: F,
}

impl<F> SummaryRow<F> {
    /// Its place among rows of one size.
    pub(super) fn label(&self) -> (&str, &str, u32) {
        (&self.name, &self.file, self.line)
    }
}

/// The bytes of a row.
#[derive(Clone, Debug, Serialize)]
pub struct RowBytes {
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
    /// With [`By::Process`], the number of the process, which may have several rows: one for each recording.
    #[serde(skip)]
    pub(super) process: usize,
    /// The sums of its own samples.
    #[serde(skip)]
    pub(super) own: ByLifetime,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Own bytes.
    #[default]
    Own,
    /// Bytes, with the bytes of everything that it called.
    Total,
    /// Own bytes that were alive at the summary's moment.
    Alive,
    /// Own bytes that died young.
    Young,
    /// Own allocations.
    Allocs,
}

/// Name, file and line of a row.
pub(super) type Label<'a> = (Cow<'a, str>, &'a str, u32);

/// All rows that there could be, each made when it is asked for: there may be one for each of a million functions.
pub(super) trait Table<T> {
    /// How many there are.
    fn len(&self) -> usize;

    fn label(&self, row: usize) -> Label<'_>;

    /// Its totals; `None` if it has no samples.
    fn totals(&self, row: usize) -> Option<KeyTotals<T>>;
}

/// The rows that have samples, in an order.
pub(super) struct Ordered<'a> {
    table: Box<dyn Table<ByLifetime> + 'a>,
    /// The rows of the table that are shown, with what orders them.
    shown: Vec<([f64; 3], u32)>,
    pub(super) left_out: usize,
    pub(super) sum_left_out: ByLifetime,
}

impl<'a> Ordered<'a> {
    /// The first rows in an order, at most `most`. Takes the sums by stack and by type.
    pub(super) fn of(
        profile: &'a Profile,
        aggregate: &mut Aggregate,
        by: By,
        (sort, most): (Sort, usize),
    ) -> Self {
        let stacks = std::mem::replace(&mut aggregate.stacks, ByStack::new(0));
        let types = std::mem::replace(&mut aggregate.types, Sparse::new(0));
        let table: Box<dyn Table<ByLifetime> + 'a> = match by {
            By::Type => Box::new(ByType::of(profile, types)),
            By::Process => Box::new(OfProcesses {
                profile,
                totals: aggregate.processes.clone(),
            }),
            By::Label(key) => Box::new(OfLabels::of(profile, &aggregate.labels, key)),
            By::Function | By::Line | By::File => Box::new(ByFrame::of(profile, stacks, by)),
        };
        let sizes = |row: usize| {
            let KeyTotals { own, total } = table.totals(row)?;
            let first = match sort {
                Sort::Own => own.all.bytes,
                Sort::Total => total.all.bytes,
                Sort::Alive => own.alive,
                Sort::Young => *own.of(Lifetime::DiedYoung),
                Sort::Allocs => own.all.allocations,
            };
            let sizes = [first, own.all.bytes, total.all.bytes].map(|of| of.estimate);
            (total.all.samples > 0).then_some((sizes, row as u32))
        };
        let mut shown = Vec::new();
        for row in (0..table.len()).filter_map(sizes) {
            inclusive::push(&mut shown, row);
        }
        let label = |row: u32| table.label(row as usize);
        shown.sort_unstable_by(|(one, row), (other, other_row)| {
            let order = largest_first(*one, *other);
            order.then_with(|| label(*row).cmp(&label(*other_row)))
        });
        let (mut left_out, mut sum_left_out) = (0, ByLifetime::default());
        for (_, row) in shown.drain(most.min(shown.len())..) {
            left_out += 1;
            if let Some(totals) = table.totals(row as usize) {
                sum_left_out.add(&totals.own);
            }
        }
        Self {
            table,
            shown,
            left_out,
            sum_left_out,
        }
    }

    /// The rows, made one after another.
    pub(super) fn rows(
        &self,
        aggregate: &Aggregate,
        alive_is_known: bool,
    ) -> impl Iterator<Item = SummaryRow<RowBytes>> {
        self.shown.iter().filter_map(move |&(_, row)| {
            let row = row as usize;
            let totals = self.table.totals(row)?;
            let label = self.table.label(row);
            Some(make(row, label, totals, aggregate, alive_is_known))
        })
    }
}

/// The order of rows with these sizes, of which the first ones differ or not.
fn largest_first(one: [f64; 3], other: [f64; 3]) -> Ordering {
    let pairs = other.into_iter().zip(one);
    pairs.fold(Ordering::Equal, |order, (other, one)| {
        order.then(other.total_cmp(&one))
    })
}

fn make(
    number: usize,
    (name, file, line): Label<'_>,
    KeyTotals { own, total }: KeyTotals<ByLifetime>,
    aggregate: &Aggregate,
    alive_is_known: bool,
) -> SummaryRow<RowBytes> {
    let whole = aggregate.all.all.bytes.estimate;
    let (estimator, of_alive) = (&aggregate.estimator, &aggregate.of_alive);
    let figures = RowBytes {
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
        process: number,
        own,
    };
    SummaryRow {
        name: name.into_owned(),
        file: file.to_owned(),
        line,
        samples: own.all.samples,
        figures,
    }
}

/// Sorts rows, largest first.
pub(super) fn sort(rows: &mut [SummaryRow<RowBytes>], sort: Sort) {
    let sizes = |SummaryRow { figures, .. }: &SummaryRow<RowBytes>| {
        let first = match sort {
            Sort::Own => figures.self_bytes.estimate,
            Sort::Total => figures.total_bytes.estimate,
            Sort::Alive => figures.own.alive.estimate,
            Sort::Young => figures.died_young.estimate,
            Sort::Allocs => figures.allocations.estimate,
        };
        [
            first,
            figures.self_bytes.estimate,
            figures.total_bytes.estimate,
        ]
    };
    rows.sort_by(|one, other| {
        let order = largest_first(sizes(one), sizes(other));
        order.then_with(|| one.label().cmp(&other.label()))
    });
}

/// Types of one name are one row.
struct ByType<'a> {
    profile: &'a Profile,
    types: Sparse<ByLifetime>,
    /// Types, in the order of their names.
    by_name: Vec<u32>,
    /// Where each row begins in `by_name`, and where the last one ends.
    rows: Vec<u32>,
}

impl<'a> ByType<'a> {
    fn of(profile: &'a Profile, types: Sparse<ByLifetime>) -> Self {
        let name = |type_id: u32| type_name(profile, type_id);
        let mut by_name: Vec<u32> = types.iter().map(|(type_id, _)| type_id).collect();
        by_name.sort_by_key(|&type_id| name(type_id));
        let begins = |&at: &u32| {
            let at = at as usize;
            at == 0 || at == by_name.len() || name(by_name[at]) != name(by_name[at - 1])
        };
        // There are no more types than a `u32` can number.
        let rows = (0..=by_name.len() as u32).filter(begins).collect();
        Self {
            profile,
            types,
            by_name,
            rows,
        }
    }
}

fn type_name(profile: &Profile, type_id: u32) -> &str {
    match profile.types[type_id as usize].name.as_str() {
        "" => NO_TYPE,
        name => name,
    }
}

impl Table<ByLifetime> for ByType<'_> {
    fn len(&self) -> usize {
        self.rows.len() - 1
    }

    fn label(&self, row: usize) -> Label<'_> {
        let first = self.by_name[self.rows[row] as usize];
        (type_name(self.profile, first).into(), "", 0)
    }

    fn totals(&self, row: usize) -> Option<KeyTotals<ByLifetime>> {
        let mut own = ByLifetime::default();
        for &type_id in &self.by_name[self.rows[row] as usize..self.rows[row + 1] as usize] {
            own.add(&self.types.of(type_id as usize));
        }
        Some(KeyTotals { own, total: own })
    }
}

/// The rows of processes.
pub(super) struct OfProcesses<'a, T> {
    pub(super) profile: &'a Profile,
    pub(super) totals: Vec<T>,
}

impl<T: Copy> Table<T> for OfProcesses<'_, T> {
    fn len(&self) -> usize {
        self.profile.processes.len().min(self.totals.len())
    }

    fn label(&self, row: usize) -> Label<'_> {
        (self.profile.processes[row].label().into(), "", 0)
    }

    fn totals(&self, row: usize) -> Option<KeyTotals<T>> {
        let own = self.totals[row];
        Some(KeyTotals { own, total: own })
    }
}

/// The rows of functions, lines or files, and the row of samples without a frame, which is the last one.
pub(super) struct ByFrame<'a, T> {
    profile: &'a Profile,
    by: By,
    /// For each key, a frame that has it.
    frames: Vec<u32>,
    totals: ByKey<T>,
    /// Of samples without a frame.
    none: T,
}

impl<'a, T: Sum> ByFrame<'a, T> {
    pub(super) fn of(profile: &'a Profile, stacks: ByStack<T>, by: By) -> Self {
        let mut frames: Vec<u32> = Vec::new();
        let mut numbers: HashMap<(u32, u32), u32, foldhash::fast::RandomState> = HashMap::default();
        let mut files: HashMap<&str, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut keys = Vec::with_capacity(profile.frames.len());
        for (number, frame) in (0..).zip(&profile.frames) {
            let key = match by {
                By::Line => (frame.function, frame.line),
                By::File => {
                    let next = files.len() as u32;
                    let name = file_name(&profile.functions[frame.function as usize]);
                    (*files.entry(name).or_insert(next), 0)
                }
                By::Function | By::Type | By::Process | By::Label(_) => (frame.function, 0),
            };
            keys.push(*numbers.entry(key).or_insert_with(|| {
                frames.push(number);
                frames.len() as u32 - 1
            }));
        }
        drop((numbers, files));
        let none = stacks.of(NodeId::ROOT.index());
        let totals = ByKey::of(profile, stacks, &keys, frames.len());
        Self {
            profile,
            by,
            frames,
            totals,
            none,
        }
    }
}

impl<T: Sum> Table<T> for ByFrame<'_, T> {
    fn len(&self) -> usize {
        self.frames.len() + 1
    }

    fn label(&self, row: usize) -> Label<'_> {
        let Some(&frame) = self.frames.get(row) else {
            return (NO_STACK.into(), "", 0);
        };
        let frame = &self.profile.frames[frame as usize];
        let function = &self.profile.functions[frame.function as usize];
        let name = function.name.as_str();
        let (name, line) = match self.by {
            By::Line => (name, frame.line),
            By::File => (file_name(function), 0),
            By::Function | By::Type | By::Process | By::Label(_) => (name, function.first_line),
        };
        (name.into(), function.file.as_str(), line)
    }

    fn totals(&self, row: usize) -> Option<KeyTotals<T>> {
        match row == self.frames.len() {
            true => Some(KeyTotals {
                own: self.none,
                total: self.none,
            }),
            false => self.totals.get(row),
        }
    }
}

/// The file of a function, as the row of the file is named.
fn file_name(function: &Function) -> &str {
    match function.file.as_str() {
        "" if fold::is_name(&function.name) => &function.name,
        "" => NO_FILE,
        file => file,
    }
}

/// The rows of a label's values, and the row of samples without that label, which is the last one.
pub(super) struct OfLabels<'a, T> {
    names: Vec<&'a str>,
    totals: Vec<T>,
}

impl<'a, T: Sum> OfLabels<'a, T> {
    /// From the sums by label set.
    pub(super) fn of(profile: &'a Profile, sums: &Sparse<T>, key: LabelKey) -> Self {
        let values = profile.label_values(key.as_str());
        let mut totals = vec![T::default(); values.values.len() + 1];
        for (set, sum) in sums.iter() {
            let value = values.of(LabelSetId(set));
            totals[value.unwrap_or(values.values.len())].add(sum);
        }
        let names = values.values.iter().copied().chain([NO_LABEL]);
        Self {
            names: names.collect(),
            totals,
        }
    }
}

impl<T: Sum> Table<T> for OfLabels<'_, T> {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn label(&self, row: usize) -> Label<'_> {
        (self.names[row].into(), "", 0)
    }

    fn totals(&self, row: usize) -> Option<KeyTotals<T>> {
        let own = self.totals[row];
        Some(KeyTotals { own, total: own })
    }
}
