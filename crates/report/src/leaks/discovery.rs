//! The rate at which [`adjust`] controls false discoveries. It is small: a leak soon gives evidence for its
//! growth, and a false report costs a person a day.

pub(crate) use crate::statistics::discovery::{Test, adjust};

/// The false discovery rate: of the sites that pass, at most this part is expected to have no late growth.
pub(crate) const RATE: f64 = 0.02;

/// The number of samples, all of them evidence for growth, that pass among this many tests if no
/// other test passes.
pub(crate) fn needed(tests: usize) -> f64 {
    (tests.max(1) as f64 / RATE).log2().ceil()
}
