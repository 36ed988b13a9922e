//! `nthbyte tree`: who called whom, down to where memory was allocated.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nthbyte_report::Tree;

use crate::output::{self, Output};

/// What `tree` takes.
#[derive(Args)]
pub struct Arguments {
    /// The profile (.nthb).
    profile: PathBuf,
    /// Show this many lines at most; 0 is all.
    #[arg(long, value_name = "N", default_value_t = 60)]
    top: usize,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read, or standard output not be written.
    pub fn run(self) -> Result<()> {
        let profile = crate::input::load(&self.profile)?;
        let lines = if self.top == 0 { usize::MAX } else { self.top };
        let tree = Tree::of(&profile, lines);
        Output::Standard
            .write(|out| Ok(out.write_all(tree.render(output::terminal_width()).as_bytes())?))
    }
}
