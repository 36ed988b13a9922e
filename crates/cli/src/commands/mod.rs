//! The subcommands, a file each.

mod elsewhere;

use anyhow::Result;
use clap::Subcommand;

/// What nthbyte can be asked to do.
#[derive(Subcommand)]
pub enum Command {
    /// Run a Python program and record which allocations it makes.
    Run(elsewhere::Words),
    /// Find the fastest size of PyPy's nursery for a program (PyPy only).
    Tune(elsewhere::Words),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// If it cannot be done; the whole chain of causes makes one line for the user.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Run(words) => words.refuse("run"),
            Self::Tune(words) => words.refuse("tune"),
        }
    }
}
