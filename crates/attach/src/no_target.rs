//! A process to attach to, on a processor where there is none.

use std::convert::Infallible;
use std::time::Duration;

use crate::awaited::Awaited;
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

/// A process that a script can be brought into: none. Its users are compiled as on other processors.
#[derive(Debug)]
pub struct Target(Infallible);

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

    /// The interpreter.
    #[must_use]
    pub fn interpreter(&self) -> &str {
        match self.0 {}
    }

    /// Runs a script.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _: &str, _: Duration, _: &Awaited) -> Result<String, Refusal> {
        match self.0 {}
    }
}
