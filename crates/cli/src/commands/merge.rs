//! `nthbyte merge`: several profiles as one file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nthbyte_report::Selection;

use crate::output::{self, Output};
use crate::progress::Progress;
use crate::question::inputs::Profiles;
use crate::question::selecting::OfDomain;
use crate::question::{Frames, Question};

/// What `merge` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The profile to write.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replace the output if it exists and is a profile.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    domain: OfDomain,
}

impl Arguments {
    /// Writes it.
    ///
    /// # Errors
    /// If a profile cannot be read or the file not be written.
    pub fn run(self) -> Result<()> {
        output::require_file(&self.output)?;
        let inputs = self.profiles.find()?;
        let output = Output::Profile(self.output);
        inputs.protect(&output, self.force)?;
        // With all domains, the count of what the interpreter's heap allocated stays: a report may show that one alone.
        let of_domain = |domain| Selection {
            domain: Some(domain),
            ..Selection::default()
        };
        let question = Question {
            selection: self.domain.only().map(of_domain),
            frames: Frames::Recorded,
            ..Question::about(inputs)
        };
        let profile = question.prepare()?.profile;
        let progress = Progress::steps("writing");
        let total = profile.samples.len() as u64;
        output.write(|out| Ok(profile.write(out, |done| progress.at(done, total))?))
    }
}
