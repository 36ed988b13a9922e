//! The old side of a page of a difference.

use nthbyte_profile::Profile;
use serde::Serialize;

/// What a profile is compared with on a page of a difference.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The old side. It shares the tables of functions, frames, stacks and types with the new side.
    pub old: &'a Profile,
    /// The number of runs in it, of which the mean is shown.
    pub old_runs: u32,
    /// The number of runs in the new side.
    pub new_runs: u32,
}

/// The old side, as the page's header has it.
#[derive(Serialize)]
pub(super) struct DescribedBase<'a> {
    command: &'a [String],
    interpreter: &'a str,
    /// Seconds.
    duration: f64,
    /// Allocation samples of all runs.
    samples: usize,
    runs: u32,
    /// Time samples a second, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_hz: Option<f64>,
}

impl<'a> DescribedBase<'a> {
    pub(super) fn of(base: &Base<'a>) -> Self {
        Self {
            command: &base.old.meta.command,
            interpreter: &base.old.meta.interpreter,
            duration: base.old.end.0 as f64 / 1e9,
            samples: base.old.samples.len(),
            runs: base.old_runs,
            cpu_hz: base.old.time_hz(),
        }
    }
}
