//! `nthbyte import`: another profiler's file as a profile.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use nthbyte_formats::{torch, vmprof};
use nthbyte_profile::folder::is_profile;

use crate::output::{self, Output, say};
use crate::progress::Progress;

/// What `import` takes.
#[derive(Args)]
pub struct Arguments {
    /// The file: a VMProf profile, compressed or not, or a snapshot of PyTorch's device memory, a pickle or JSON.
    file: PathBuf,
    /// The profile to write (default: the file's name with the suffix .nthb, in the current folder).
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the output if it exists and is a profile.
    #[arg(short, long)]
    force: bool,
}

impl Arguments {
    /// Writes it.
    ///
    /// # Errors
    /// If the file cannot be read or has an unknown format, or if the profile cannot be written.
    pub fn run(self) -> Result<()> {
        let output = self.output.unwrap_or_else(|| beside(&self.file));
        output::require_file(&output)?;
        if is_profile(&self.file) {
            bail!("{} is a profile of nthbyte already", self.file.display());
        }
        let input = std::slice::from_ref(&self.file);
        Output::Profile(output.clone()).protect(input, self.force)?;
        if torch::is_snapshot(&self.file) {
            let in_use = torch::import(&self.file, &output)?;
            say!(
                "nthbyte: wrote {}, {in_use} blocks were in use",
                output.display()
            );
            return Ok(());
        }
        let progress = Progress::bytes("reading");
        let found = vmprof::import(&self.file, &output, &mut |done, total| {
            progress.at(done, total)
        })?;
        drop(progress);
        for damage in found.damage {
            say!("nthbyte: {}: {damage}", self.file.display());
        }
        say!("nthbyte: wrote {}", output.display());
        Ok(())
    }
}

fn beside(file: &Path) -> PathBuf {
    PathBuf::from(file.file_name().unwrap_or_default()).with_extension("nthb")
}
