//! Findings: the values that are shown for a leak, and for memory that is held without a leak.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use serde::Serialize;

use super::rounds::NOTABLE;
use super::survival::SurvivalPoint;
use super::verdict::Verdict;
use crate::estimate::Estimate;
use crate::holders::HeldBy;

/// A line of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LeakPlace {
    /// Qualified name of the function.
    pub function: String,
    /// Source file.
    pub file: String,
    /// The line of the allocation; if it is not recorded (PyPy), the line of the function's
    /// definition.
    pub line: u32,
}

impl LeakPlace {
    /// What places of one function have in common.
    pub(crate) fn of_function(&self) -> (&str, &str) {
        (&self.function, &self.file)
    }
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
    pub place: LeakPlace,
    /// All lines of that function that take part, largest first.
    pub lines: Vec<Share<LeakPlace>>,
    /// The types of the kept objects, largest first.
    pub types: Vec<Share<String>>,
    /// The labels of the kept objects, `key=value`: of each key the values with most, keys in the order of their first labels.
    pub labels: Vec<Share<String>>,
    /// The most frequent callers: lines of own code, innermost first.
    pub callers: Vec<LeakPlace>,
    /// The line of a library where most of it is allocated, if a library allocates it.
    pub inner: Option<LeakPlace>,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Number of samples alive at the end.
    pub samples: u64,
    /// Growth in bytes, from the end of start-up on.
    pub grown: Estimate,
    /// How long that took, in nanoseconds.
    pub grown_nanos: u64,
    /// Growth in bytes a minute; `None` if it was seen for less than [`MINUTE_FROM`](super::MINUTE_FROM).
    pub per_minute: Option<Estimate>,
    /// Bytes kept of each MiB that the program allocates.
    pub per_mib: f64,
    /// The share of these lines' allocations that was not freed during the session.
    pub kept: f64,
    /// Of the objects whose blocks CPython uses again, and that were allocated at these lines in the first half of the run: the share
    /// that is alive at the end.
    #[serde(skip)]
    pub(crate) kept_of_reused: Option<f64>,
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
    pub survival: Vec<SurvivalPoint>,
    /// Other functions that allocate for the same leak: callers and callees at these lines.
    pub parts: Vec<LeakShare>,
    /// Lines that allocated blocks which CPython used again without freeing them, probably for objects of this leak. Their growth
    /// is in `grown` and `per_minute`, and what they hold in `held` and `per_mib`.
    pub taken_over: Vec<LeakShare>,
    /// The container that grows, if it is one.
    pub container: Option<Container>,
    /// Who holds the kept objects, where a snapshot says it.
    pub held_by: Option<HeldBy>,
    #[serde(skip)]
    pub(crate) lives: Vec<u32>,
}

/// Another function's part of a leak.
#[derive(Clone, Debug, Serialize)]
pub struct LeakShare {
    /// Its line.
    pub place: LeakPlace,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Growth in bytes, from the end of start-up on.
    pub grown: Estimate,
    /// Growth in bytes a minute, as in [`Finding`].
    pub per_minute: Option<Estimate>,
}

/// A block that was reallocated, larger each time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Container {
    /// How often, after start-up.
    pub steps: usize,
    /// Its size after start-up, in bytes.
    pub from: f64,
    /// Its size at the end.
    pub to: f64,
}

/// A function that holds memory without leaking.
#[derive(Clone, Debug, Serialize)]
pub struct Retainer {
    /// Its line with the most bytes.
    pub place: LeakPlace,
    /// The reason why it is not a leak.
    pub verdict: Verdict,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Whether most of it was freed at the program's end; then `held` is the value just before that.
    pub freed_at_end: bool,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
}

impl Finding {
    /// Whether it grew by enough to be called a leak where nobody says that the work is repeated.
    pub(crate) fn is_notable(&self) -> bool {
        self.grown_with_parts() >= NOTABLE
    }

    /// The growth of all that leaks together.
    fn grown_with_parts(&self) -> f64 {
        let parts = self.parts.iter().map(|part| part.grown.estimate);
        self.grown.estimate + parts.sum::<f64>()
    }

    /// Undecided until the run is so long that the growth is [notable](Self::is_notable).
    pub(crate) fn after_a_longer_run(self) -> Self {
        let factor = (NOTABLE / self.grown_with_parts().max(1.0)).max(1.5);
        let minutes = self.grown_nanos as f64 / 60e9;
        Self {
            verdict: Verdict::NotEnoughData,
            more_minutes: Some((factor - 1.0) * minutes),
            ..self
        }
    }

    /// The places that are the finding's: its lines, and the lines of its parts.
    fn places(&self) -> impl Iterator<Item = &LeakPlace> {
        let lines = self.lines.iter().map(|line| &line.what);
        let parts = self.parts.iter().chain(&self.taken_over);
        lines.chain(parts.map(|part| &part.place))
    }
}

/// The functions that findings name: each by its name and its file.
pub(crate) struct Named<'a>(HashSet<(&'a str, &'a str), RandomState>);

impl<'a> Named<'a> {
    pub(crate) fn of(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let places = findings.into_iter().flat_map(Finding::places);
        Self(places.map(LeakPlace::of_function).collect())
    }

    /// Whether a place is in one of the functions.
    pub(crate) fn has(&self, place: &LeakPlace) -> bool {
        self.0.contains(&place.of_function())
    }
}
