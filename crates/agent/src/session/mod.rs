//! One profiling run: from the interpreter's slow path to the file.
//!
//! ```text
//! Recorder ── ring of records ──▶ Drain (writer thread) ──▶ profile::Writer
//! ```
//!
//! The [`Recorder`] is used by whoever holds the interpreter's lock; the ring has one producer and
//! one consumer and never blocks. A fork stops the thread, and the child goes on with a profile of
//! its own, which comes into being with its first sample.

pub mod config;

mod clock;
mod drain;
mod output;
mod record;
mod recorder;
#[cfg(test)]
mod tests;
mod tree;
mod waiting;
mod worker;

pub use clock::Clock;
#[cfg(target_arch = "x86_64")]
pub(crate) use clock::monotonic_nanos;
pub use config::{Config, HugePages};
pub use drain::Outcome;
pub use recorder::Recorder;
