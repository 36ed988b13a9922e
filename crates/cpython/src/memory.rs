//! Reads of the interpreter's memory.

pub use nthbyte_host::process::{Plain, Probe, field};
