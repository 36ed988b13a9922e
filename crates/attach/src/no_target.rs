//! A process to attach to, on a processor where that is not possible.

use std::time::Duration;

use crate::process;
use crate::refusal::{Refusal, refuse};

/// How a script gets into a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The best one.
    #[default]
    Best,
    /// The interpreter's own.
    Remote,
}

/// A process; there is none that can be attached to here.
#[derive(Debug)]
pub struct Target {
    pid: u32,
}

impl Target {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn open(pid: u32) -> Result<Self, Refusal> {
        process::check(pid)?;
        Err(refuse!(
            "nthbyte enters running processes on x86-64 only: start the program with NTHBYTE=ready"
        ))
    }

    /// The same.
    #[must_use]
    pub fn by(self, _: Way) -> Self {
        self
    }

    /// The process's number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The interpreter.
    #[must_use]
    pub fn interpreter(&self) -> &str {
        ""
    }

    /// Runs a script.
    ///
    /// # Errors
    /// Always.
    pub fn run(&self, _: &str, _: Duration) -> Result<String, Refusal> {
        Err(refuse!("process {} cannot be entered", self.pid))
    }
}
