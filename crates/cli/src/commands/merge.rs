//! `nthbyte merge`: several profiles, or a part of one, as one file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::Profile;
use nthbyte_profile::checkpoint::{self, Ending};
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
    /// A file with what the last part of this profile has read, which is written anew.
    #[arg(long, hide = true, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
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
        if let Some(checkpoint) = self.checkpoint.clone() {
            return self.part(&checkpoint);
        }
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
        write(&profile, &output)
    }

    /// Writes a part of a recording that goes on, for the program that is recorded.
    fn part(self, checkpoint: &Path) -> Result<()> {
        let Some((since, until)) = self.time.range() else {
            bail!("--checkpoint is for a part: --since and --until are missing");
        };
        let inputs = self.profiles.or_alone().find()?;
        let output = Output::Profile(self.output);
        inputs.protect(&output, self.force)?;
        let path = match inputs.paths() {
            [path] => path,
            // Parts of one session: no checkpoint leads from one to the next.
            several => {
                let mut profile = Profile::load_all(several, |_, _| ())?;
                profile.keep_part(since, until);
                return write(&profile, &output);
            }
        };
        let known = fs::read(checkpoint).unwrap_or_default();
        let Ending {
            mut profile,
            checkpoint: next,
            ..
        } = checkpoint::read(path, since, &known)
            .with_context(|| format!("cannot read {}", path.display()))?;
        profile.keep_part(since, until);
        write(&profile, &output)?;
        // Without it, the next part takes longer.
        let _ = fs::write(checkpoint, next.unwrap_or_default());
        Ok(())
    }
}

fn write(profile: &Profile, output: &Output) -> Result<()> {
    let progress = Progress::steps("writing");
    let total = profile.samples.len() as u64;
    output.write(|out| Ok(profile.write(out, |done| progress.at(done, total))?))
}
