//! `nthbyte flamegraph`: one self-contained page.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nthbyte_report::flamegraph;

use crate::output::Output;
use crate::progress::Progress;

/// What `flamegraph` takes.
#[derive(Args)]
pub struct Arguments {
    /// The profile (.nthb).
    profile: PathBuf,
    /// The file to write; `-` is standard output (default: the profile's name with the suffix .html).
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Overwrite the output also where it is another profile.
    #[arg(short, long)]
    force: bool,
}

impl Arguments {
    /// Writes the page.
    ///
    /// # Errors
    /// If the profile cannot be read or the page cannot be written.
    pub fn run(self) -> Result<()> {
        let profile = crate::input::load(&self.profile)?;
        let output = Output::beside(&self.profile, self.output, "html");
        output.protect(&self.profile, self.force)?;
        let progress = Progress::steps("writing");
        output.write(|out| {
            Ok(flamegraph::write_with(
                &profile,
                out,
                &mut |done, total| progress.at(done, total),
            )?)
        })
    }
}
