//! `nthbyte flamegraph`: one page that needs nothing else.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nthbyte_report::flamegraph;

use crate::input::{Apart, Profiles};
use crate::output::Output;
use crate::progress::Progress;

/// What `flamegraph` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The file to write; `-` is standard output. Without it, one named like the profile.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Tell processes apart.
    #[arg(long, value_enum)]
    by: Option<Apart>,
}

impl Arguments {
    /// Writes the page.
    ///
    /// # Errors
    /// If the profile cannot be read or the page not be written.
    pub fn run(self) -> Result<()> {
        let mut profile = self.profiles.load()?;
        if self.by == Some(Apart::Process) {
            profile.root_by_process();
        }
        let progress = Progress::steps("writing");
        Output::beside(self.profiles.first(), self.output, "html").write(|out| {
            Ok(flamegraph::write_with(
                &profile,
                out,
                &mut |done, total| progress.at(done, total),
            )?)
        })
    }
}
