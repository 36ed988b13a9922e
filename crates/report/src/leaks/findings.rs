//! Findings: what is shown of a leak, and of what holds memory without being one.

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
    /// The line that ran; where that is not recorded (PyPy), that of the function's definition.
    pub line: u32,
}

/// A part of what a finding keeps.
#[derive(Clone, Debug, Serialize)]
pub struct Share<T> {
    /// What it is.
    pub what: T,
    /// From 0 to 1.
    pub share: f64,
}

/// Something that leaks or may leak.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Whether it does.
    pub verdict: Verdict,
    /// The line of the user's own code that allocates most of what is kept.
    pub place: Place,
    /// All lines of that function that take part, largest first.
    pub lines: Vec<Share<Place>>,
    /// The types of what is kept, largest first.
    pub types: Vec<Share<String>>,
    /// Who called, in most cases: lines of own code, innermost first.
    pub callers: Vec<Place>,
    /// The line of a library where most of it is allocated, if it is in one.
    pub inner: Option<Place>,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Samples among them.
    pub samples: u64,
    /// Growth in bytes a minute.
    pub per_minute: Estimate,
    /// Bytes kept of each MiB that the program allocates.
    pub per_mib: f64,
    /// The share of what these lines allocate that is never freed, as far as was seen.
    pub kept: f64,
    /// Whether it was freed as the program ended; then `held` is from just before that.
    pub freed_at_end: bool,
    /// The mean position of the growth in the window: 0.5 if it is steady.
    pub mean_position: f64,
    /// Probability of so much growth by chance.
    pub p: f64,
    /// The same, adjusted for the number of tests.
    pub adjusted_p: f64,
    /// How many minutes more the program should run, if there is not enough data.
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
    /// Its line with most of it.
    pub place: Place,
    /// Why it is no leak.
    pub verdict: Verdict,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
}

impl Finding {
    /// Whether this may be memory that is kept for reuse, or that another, larger leak holds. CPython
    /// does not free the blocks of some types but keeps a stock of them for the next objects of that
    /// type: who allocated a block and who keeps the object may differ, and the stock grows until it is
    /// full. So does it look where nearly all of what is allocated dies.
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

/// The most that such a stock holds in practice, in bytes: 2000 tuples of each of a few sizes.
const STOCK: f64 = 1_048_576.0;
