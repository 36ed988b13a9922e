//! `nthbyte merge`: several profiles as one file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::input::Profiles;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::selecting::OfDomain;

/// What `merge` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The profile to write.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Overwrite the output even if it is a profile.
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
        let mut profile = inputs.load_raw()?;
        if let Some(domain) = self.domain.only() {
            profile.keep_domain(Some(domain));
        }
        // With all domains, the count of what the interpreter's heap allocated stays: a report may show that one alone.
        let progress = Progress::steps("writing");
        let total = profile.samples.len() as u64;
        output.write(|out| Ok(profile.write(out, |done| progress.at(done, total))?))
    }
}
