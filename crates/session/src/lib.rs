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
mod outcome;
mod output;
pub mod process;
mod record;
mod recorder;
#[cfg(test)]
mod tests;
mod tree;
mod waiting;
mod worker;

pub use clock::{Clock, monotonic_nanos};
pub use config::Config;
pub use outcome::{Outcome, copy_text};
pub use recorder::Recorder;
