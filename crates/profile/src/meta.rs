//! What is known about a session before anything happens in it.

pub use nthbyte_sampling::Distances;
use serde::{Deserialize, Serialize};

/// How the samples were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// CPython: free lists cut at the sample point.
    CutFreeLists,
    /// PyPy: the nursery's limit moved to the sample point.
    NurseryLimit,
    /// PyPy: one sample at every k-th minor collection, through `gc.hooks`.
    GcHooks,
    /// Converted from another profiler's file.
    Imported,
}

/// The session's description: the first thing in a profile, written as JSON so that fields can be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of nthbyte that wrote the profile.
    pub nthbyte: String,
    /// Interpreter and version: `CPython 3.13.0`, `PyPy 7.3.11 (Python 3.9.16)`.
    pub interpreter: String,
    /// Path of the interpreter.
    pub executable: String,
    /// The program and its arguments (`sys.argv`).
    pub command: Vec<String>,
    /// Process number.
    pub pid: u32,
    /// The process that this one was forked or spawned from, if that one was profiled too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_pid: Option<u32>,
    /// Wall-clock time of the session's start: nanoseconds since 1970-01-01 UTC.
    pub started_unix_nanos: u64,
    /// Mean distance between sample points, in bytes; 1 with [`Distances::Every`].
    pub period: u64,
    /// How the distances were drawn.
    pub distances: Distances,
    /// How the samples were taken.
    pub method: Method,
    /// Seed of the distances.
    #[serde(default)]
    pub seed: u64,
    /// Time samples a second, if any were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_hz: Option<u32>,
    /// Remarks for whoever reads the profile, a sentence each ("hugetlb: the pool was empty, …").
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
