//! `nthbyte merge`: several profiles, or a part of one, as one file.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use nthbyte_report::Selection;

use crate::output::{self, Output};
use crate::progress::Progress;
use crate::question::by::{NoBy, NoLabel};
use crate::question::inputs::Profiles;
use crate::question::selecting::{OfDomain, OfTime};
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
    #[command(flatten)]
    time: OfTime,
    #[command(flatten)]
    label: NoLabel,
    #[command(flatten)]
    by: NoBy,
}

impl Arguments {
    /// Writes it.
    ///
    /// # Errors
    /// If a profile cannot be read or the file not be written.
    pub fn run(self) -> Result<()> {
        self.label
            .refuse("merge keeps all labels; the reports of what it writes take it")?;
        self.by.refuse(
            "merge keeps all labels; nthbyte summary, tree, flamegraph and export take it",
        )?;
        output::require_file(&self.output)?;
        let profiles = match self.time.range() {
            // A part is one of one process.
            Some(_) => self.profiles.or_alone(),
            None => self.profiles,
        };
        let inputs = profiles.find()?;
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
        let mut profile = question.prepare()?.profile;
        if let Some((since, until)) = self.time.range() {
            if profile.processes.len() > 1 {
                bail!(
                    "--since and --until make a part of one process: name one profile, without --all"
                );
            }
            profile.keep_part(since, until);
        }
        let progress = Progress::steps("writing");
        let total = profile.samples.len() as u64;
        output.write(|out| Ok(profile.write(out, |done| progress.at(done, total))?))
    }
}
