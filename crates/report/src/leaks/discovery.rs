//! How many of the accusations may be wrong: the rate at which false discoveries are controlled by
//! [`adjust`]. It is a small one: a leak soon gives evidence for it, and a false accusation costs somebody a day.

pub(crate) use crate::statistics::discovery::{Test, adjust};

/// The false discovery rate: of the sites that pass, at most this part is expected to have no late growth.
pub(crate) const RATE: f64 = 0.02;

/// How many samples, all for growth, pass among so many tests if no other one passes.
pub(crate) fn needed(tests: usize) -> f64 {
    (tests.max(1) as f64 / RATE).log2().ceil()
}
