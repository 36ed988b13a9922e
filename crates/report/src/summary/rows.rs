//! The rows of a summary.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;
use nthbyte_profile::model::{Function, Lifetime};
use serde::Serialize;

use super::{By, NO_FILE, NO_STACK, NO_TYPE, labels, processes};
use crate::aggregate::{Aggregate, ByLifetime};
use crate::estimate::Estimate;
use crate::fold;
use crate::inclusive::{ByKey, ByStack, KeyTotals, Sparse, Sum};

/// One row of a summary, with figures of bytes or of time.
#[derive(Clone, Debug, Serialize)]
pub struct Row<F> {
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

impl<F> Row<F> {
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
pub(super) type Label<'a> = (Cow<'a, str>, &'a str, u32);

/// A row to be.
struct Candidate<'a> {
    number: usize,
    label: Label<'a>,
    totals: KeyTotals<ByLifetime>,
}

impl Candidate<'_> {
    fn order(&self, other: &Self, sort: Sort) -> Ordering {
        let size = |of: &Self| {
            let KeyTotals { own, total } = &of.totals;
            let first = match sort {
                Sort::Own => own.all.bytes,
                Sort::Total => total.all.bytes,
                Sort::Alive => own.alive,
                Sort::Young => *own.of(Lifetime::DiedYoung),
                Sort::Allocs => own.all.allocations,
            };
            [first, own.all.bytes, total.all.bytes].map(|of| of.estimate)
        };
        largest_first(size(self), size(other)).then_with(|| self.label.cmp(&other.label))
    }
}

/// The order of rows with these sizes, of which the first ones differ or not.
fn largest_first(one: [f64; 3], other: [f64; 3]) -> Ordering {
    let pairs = other.into_iter().zip(one);
    pairs.fold(Ordering::Equal, |order, (other, one)| {
        order.then(other.total_cmp(&one))
    })
}

/// The first rows, and what the others are together.
pub(super) struct First {
    pub(super) rows: Vec<Row<RowBytes>>,
    pub(super) left_out: usize,
    pub(super) sum_left_out: ByLifetime,
}

/// The first rows in an order, at most `most`: of a million functions, others are never made. Takes the sums
/// by stack and by type.
pub(super) fn rows(
    profile: &Profile,
    aggregate: &mut Aggregate,
    by: By,
    alive_is_known: bool,
    (sort, most): (Sort, usize),
) -> First {
    let stacks = std::mem::replace(&mut aggregate.stacks, ByStack::new(0));
    let types = std::mem::replace(&mut aggregate.types, Sparse::new(0));
    let aggregate = &*aggregate;
    let labelled = match by {
        By::Type => by_type(profile, types),
        By::Process => processes::labelled(profile, &aggregate.processes),
        By::Label(key) => labels::labelled(profile, &aggregate.labels, key),
        By::Function | By::Line | By::File => by_frame(profile, stacks, by),
    };
    let (mut left_out, mut sum_left_out) = (0, ByLifetime::default());
    let mut cut = |candidates: &mut Vec<Candidate<'_>>| {
        candidates.sort_by(|one, other| one.order(other, sort));
        for candidate in candidates.drain(most.min(candidates.len())..) {
            left_out += 1;
            sum_left_out.add(&candidate.totals.own);
        }
    };
    let mut candidates = Vec::new();
    for (number, label, totals) in labelled {
        if totals.total.all.samples > 0 {
            candidates.push(Candidate {
                number,
                label,
                totals,
            });
            if candidates.len() > most.saturating_mul(2).saturating_add(CANDIDATES) {
                cut(&mut candidates);
            }
        }
    }
    cut(&mut candidates);
    let candidates = candidates.into_iter();
    First {
        rows: candidates
            .map(|of| row(of, aggregate, alive_is_known))
            .collect(),
        left_out,
        sum_left_out,
    }
}

/// Candidates beyond those of which rows are made: so many are sorted together.
const CANDIDATES: usize = 1_000;

fn row(of: Candidate<'_>, aggregate: &Aggregate, alive_is_known: bool) -> Row<RowBytes> {
    let whole = aggregate.all.all.bytes.estimate;
    let (estimator, of_alive) = (&aggregate.estimator, &aggregate.of_alive);
    let KeyTotals { own, total } = of.totals;
    let (name, file, line) = of.label;
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
        process: of.number,
        own,
    };
    Row {
        name: name.into_owned(),
        file: file.to_owned(),
        line,
        samples: own.all.samples,
        figures,
    }
}

/// Sorts rows, largest first.
pub(super) fn sort(rows: &mut [Row<RowBytes>], sort: Sort) {
    let sizes = |Row { figures, .. }: &Row<RowBytes>| {
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

/// The labels of rows and their totals, each with the number of its label.
pub(super) type Labelled<'a, T> = Box<dyn Iterator<Item = (usize, Label<'a>, KeyTotals<T>)> + 'a>;

/// Types of one name are one row.
fn by_type(profile: &Profile, types: Sparse<ByLifetime>) -> Labelled<'_, ByLifetime> {
    let name = |type_id: u32| match profile.types[type_id as usize].name.as_str() {
        "" => NO_TYPE,
        name => name,
    };
    let mut by_name: Vec<u32> = types.iter().map(|(type_id, _)| type_id).collect();
    by_name.sort_by_key(|&type_id| name(type_id));
    let mut left = by_name.into_iter().peekable();
    let rows = std::iter::from_fn(move || {
        let first = left.next()?;
        let mut own = types.of(first as usize);
        while let Some(alike) = left.next_if(|&other| name(other) == name(first)) {
            own.add(&types.of(alike as usize));
        }
        Some((name(first), own))
    });
    Box::new(
        rows.enumerate().map(|(number, (name, own))| {
            (number, (name.into(), "", 0), KeyTotals { own, total: own })
        }),
    )
}

/// The rows of functions, lines or files that have samples, and the row of samples without a frame.
pub(super) fn by_frame<T: Sum + 'static>(
    profile: &Profile,
    stacks: ByStack<T>,
    by: By,
) -> Labelled<'_, T> {
    // For each key, a frame that has it.
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
    let count = frames.len();
    let rows = frames.into_iter().enumerate();
    let rows = rows.filter_map(move |(key, frame)| {
        let frame = &profile.frames[frame as usize];
        let function = &profile.functions[frame.function as usize];
        let totals = totals.get(key)?;
        let name = function.name.as_str();
        let (name, line) = match by {
            By::Line => (name, frame.line),
            By::File => (file_name(function), 0),
            By::Function | By::Type | By::Process | By::Label(_) => (name, function.first_line),
        };
        Some((key, (name.into(), function.file.as_str(), line), totals))
    });
    let none = KeyTotals {
        own: none,
        total: none,
    };
    let none = (count, (NO_STACK.into(), "", 0), none);
    Box::new(rows.chain([none]))
}

/// The file of a function, as the row of the file is named.
fn file_name(function: &Function) -> &str {
    match function.file.as_str() {
        "" if fold::is_name(&function.name) => &function.name,
        "" => NO_FILE,
        file => file,
    }
}
