//! `nthbyte leaks`: what accumulates, with the evidence.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use nthbyte_report::Leaks;

use crate::input::Profiles;
use crate::output::{self, Output};

/// What `leaks` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// Exit with status 1 if something leaks.
    #[arg(long)]
    fail: bool,
    /// Write JSON, as docs/leaks.md describes it.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Prints the verdicts.
    ///
    /// # Errors
    /// If a profile cannot be read, or standard output cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let leaks = Leaks::of(&self.profiles.find()?.load_each()?);
        Output::Standard.write(|out| {
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &leaks)?;
                writeln!(out)?;
            } else {
                out.write_all(leaks.render(output::terminal_width()).as_bytes())?;
            }
            Ok(())
        })?;
        Ok(ExitCode::from(u8::from(self.fail && leaks.leaks)))
    }
}
