//! `nthbyte tree`: the tree of calls, down to where memory was allocated or time was spent.

use anyhow::Result;
use clap::Args;
use nthbyte_profile::Profile;
use nthbyte_report::{Bytes, Quantity, Time, Tree};

use crate::output::{self, Output};
use crate::progress::during;
use crate::question::by::{self, Apart};
use crate::question::inputs::Profiles;
use crate::question::selecting::{FrameOptions, Selecting};
use crate::question::{Frames, Question, Samples};

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
    /// Put each process, or each value of a label, at the top, with its own calls below it.
    #[arg(long, value_name = "process|thread|task|test|label:KEY", value_parser = by::apart)]
    by: Option<Apart>,
    #[command(flatten)]
    frames: FrameOptions,
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
        let selection = self.selecting.selection();
        let is_whole = selection.is_whole();
        let question = Question {
            selection: Some(selection),
            samples: Samples::OneKind { time: self.time },
            frames: self.frames.or(Frames::Folded),
            by: self.by,
            ..Question::about(self.profiles.find()?)
        };
        let prepared = question.prepare()?;
        let profile = &prepared.profile;
        let lines = if self.top == 0 { usize::MAX } else { self.top };
        let width = output::terminal_width();
        let text = match prepared.is_of_time {
            true => tree::<Time>(profile, lines, is_whole, width),
            false => tree::<Bytes>(profile, lines, is_whole, width),
        };
        Output::Standard.write(|out| Ok(out.write_all(text.as_bytes())?))
    }
}

fn tree<Q: Quantity>(profile: &Profile, lines: usize, is_whole: bool, width: usize) -> String {
    let tree = during("adding up", || Tree::<Q>::of(profile, lines));
    match is_whole {
        true => tree.render(width),
        false => tree.of_a_part().render(width),
    }
}
