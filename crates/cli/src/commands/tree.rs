//! `nthbyte tree`: who called whom, down to where memory was allocated or time was spent.

use anyhow::Result;
use clap::Args;
use nthbyte_report::Tree;

use crate::input::{Apart, Profiles};
use crate::output::{self, Output};

/// What `tree` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// Show this many lines at most; 0 is all.
    #[arg(long, value_name = "N", default_value_t = 60)]
    top: usize,
    /// Show time, from the time samples. A profile that has nothing else is shown so without it.
    #[arg(long)]
    time: bool,
    /// Tell processes apart.
    #[arg(long, value_enum)]
    by: Option<Apart>,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read, has not what is to be shown, or standard output cannot be
    /// written.
    pub fn run(self) -> Result<()> {
        let mut profile = self.profiles.load()?;
        if self.by == Some(Apart::Process) {
            profile.root_by_process();
        }
        let lines = if self.top == 0 { usize::MAX } else { self.top };
        let only_time = profile.samples.is_empty() && !profile.cpu.is_empty();
        let tree = if self.time || only_time {
            crate::input::require_time(self.profiles.first(), &profile)?;
            Tree::of_time(&profile, lines)
        } else {
            Tree::of(&profile, lines)
        };
        Output::Standard
            .write(|out| Ok(out.write_all(tree.render(output::terminal_width()).as_bytes())?))
    }
}
