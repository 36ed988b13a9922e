//! `nthbyte tree`: the tree of calls, down to where memory was allocated or time was spent.

use anyhow::Result;
use clap::Args;
use nthbyte_report::Tree;

use crate::input::{Apart, Profiles};
use crate::output::{self, Output};
use crate::progress::during;
use crate::selecting::{Frames, Selecting};

/// What `tree` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// Show at most N lines; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 60)]
    top: usize,
    /// Show running time, from the time samples. This is the default for a profile without allocation samples.
    #[arg(long)]
    time: bool,
    /// Put each process at the top, with its own calls below it.
    #[arg(long, value_enum)]
    by: Option<Apart>,
    #[command(flatten)]
    frames: Frames,
    #[command(flatten)]
    selecting: Selecting,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read or has no time samples to show, or if standard output cannot be
    /// written.
    pub fn run(self) -> Result<()> {
        let inputs = self.profiles.find()?;
        let mut profile = inputs.load()?;
        let only_time = profile.samples.is_empty() && !profile.cpu.is_empty();
        let time = self.time || only_time;
        if time {
            crate::input::require_time(self.profiles.first(), &profile)?;
            self.selecting.require_no_objects()?;
        }
        self.selecting.apply(&mut profile)?;
        self.frames.apply(&mut profile, true);
        if self.by == Some(Apart::Process) {
            profile.root_by_process();
        }
        let lines = if self.top == 0 { usize::MAX } else { self.top };
        let tree = during("adding up", || match time {
            true => Tree::of_time(&profile, lines),
            false => Tree::of(&profile, lines),
        });
        let tree = match self.selecting.is_whole() {
            true => tree,
            false => tree.of_a_part(),
        };
        Output::Standard
            .write(|out| Ok(out.write_all(tree.render(output::terminal_width()).as_bytes())?))
    }
}
