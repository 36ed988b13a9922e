//! Findings: the values that are shown for a leak, and for memory that is held without a leak.

use serde::Serialize;

use super::survival::Survival;
use super::verdict::Verdict;
use crate::estimate::Estimate;

/// A line of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Qualified name of the function.
    pub function: String,
    /// Source file.
    pub file: String,
    /// The line of the allocation; if it is not recorded (PyPy), the line of the function's
    /// definition.
    pub line: u32,
}

/// A part of what a finding keeps.
#[derive(Clone, Debug, Serialize)]
pub struct Share<T> {
    /// The line or type.
    pub what: T,
    /// From 0 to 1.
    pub share: f64,
}

/// Something that leaks or may leak.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Whether it leaks.
    pub verdict: Verdict,
    /// The line of the user's own code that allocates most of the kept bytes.
    pub place: Place,
    /// All lines of that function that take part, largest first.
    pub lines: Vec<Share<Place>>,
    /// The types of the kept objects, largest first.
    pub types: Vec<Share<String>>,
    /// The most frequent callers: lines of own code, innermost first.
    pub callers: Vec<Place>,
    /// The line of a library where most of it is allocated, if a library allocates it.
    pub inner: Option<Place>,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Number of samples alive at the end.
    pub samples: u64,
    /// Growth in bytes a minute.
    pub per_minute: Estimate,
    /// Bytes kept of each MiB that the program allocates.
    pub per_mib: f64,
    /// The share of these lines' allocations that was not freed during the session.
    pub kept: f64,
    /// Whether it was freed at the program's end; then `held` is the value just before that.
    pub freed_at_end: bool,
    /// The mean position of the growth in the window: 0.5 if it is steady.
    pub mean_position: f64,
    /// Probability of so much growth by chance.
    pub p: f64,
    /// The same, adjusted for the number of tests.
    pub adjusted_p: f64,
    /// The number of additional minutes that the program must run, if there is not enough data.
    pub more_minutes: Option<f64>,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
    /// The share of bytes whose objects live longer than an age.
    pub survival: Vec<Survival>,
    /// Other functions that allocate for the same leak: callers and callees at these lines.
    pub parts: Vec<Part>,
    #[serde(skip)]
    pub(crate) lives: Vec<u32>,
}

/// Another function's part of a leak.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its line.
    pub place: Place,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Growth in bytes a minute.
    pub per_minute: Estimate,
}

/// A function that holds memory without leaking.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// Its line with the most bytes.
    pub place: Place,
    /// The reason why it is not a leak.
    pub verdict: Verdict,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
}

impl Finding {
    /// Whether this may be memory that is kept for reuse, or that another, larger leak holds. CPython
    /// does not free the blocks of some types, but keeps a free list of them for the next objects of
    /// that type. So the site that allocated a block may differ from the site that keeps the object,
    /// and the free list grows until it is full. It looks the same if almost all allocated objects die.
    pub(crate) fn may_be_reused(&self, findings: &[Self]) -> bool {
        let listed = self
            .types
            .iter()
            .filter(|kind| FREE_LISTS.contains(&kind.what.as_str()));
        let growth = self.per_minute.estimate;
        let beside = || {
            findings
                .iter()
                .any(|other| other.per_minute.estimate > 4.0 * growth)
        };
        listed.map(|kind| kind.share).sum::<f64>() > 0.5
            && self.kept < 0.05
            && (self.held.estimate < STOCK || beside())
    }

    /// Whether a line is among the finding's.
    pub(crate) fn names(&self, place: &Place) -> bool {
        let lines = self.lines.iter().map(|line| &line.what);
        let mut all = lines.chain(self.parts.iter().map(|part| &part.place));
        all.any(|one| one.file == place.file && one.function == place.function)
    }
}

/// Types whose blocks CPython keeps for reuse (`Include/internal/pycore_freelist_state.h` and, before
/// 3.13, the source of each type).
const FREE_LISTS: [&str; 8] = [
    "tuple",
    "list",
    "dict",
    "dict keys",
    "float",
    "slice",
    "method",
    "coroutine",
];

/// The largest size of such a free list in practice, in bytes: 2000 tuples of each of a few sizes.
const STOCK: f64 = 1_048_576.0;
