//! Reads of the interpreter's memory.

pub use nthbyte_session::process::{Plain, Probe, field};
