//! `nthbyte summary`: who allocated how much, as a table or as JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use nthbyte_report::{By, Summary};

use crate::output::Output;

/// What `summary` takes.
#[derive(Args)]
pub struct Arguments {
    /// The profile (.nthb).
    profile: PathBuf,
    /// What a row stands for.
    #[arg(long, value_enum, default_value_t = Rows::Function)]
    by: Rows,
    /// Show this many rows; 0 is all. A table has 20 of them without it, JSON all.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Write JSON, as docs/summary-json.md describes it.
    #[arg(long)]
    json: bool,
}

/// What a row can stand for.
#[derive(Clone, Copy, ValueEnum)]
enum Rows {
    /// A function.
    Function,
    /// A line of a function.
    Line,
    /// A source file.
    File,
    /// The type of what was allocated.
    Type,
}

impl From<Rows> for By {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Function => Self::Function,
            Rows::Line => Self::Line,
            Rows::File => Self::File,
            Rows::Type => Self::Type,
        }
    }
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read, or standard output not be written.
    pub fn run(self) -> Result<()> {
        let profile = crate::input::load_quietly(&self.profile)?;
        let mut summary = Summary::of(&profile, self.by.into());
        match self.top.unwrap_or(if self.json { 0 } else { 20 }) {
            0 => {}
            rows => summary.truncate(rows),
        }
        Output::Standard.write(|out| {
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &summary)?;
                writeln!(out)?;
            } else {
                out.write_all(summary.render(crate::output::terminal_width()).as_bytes())?;
            }
            Ok(())
        })
    }
}
