//! `nthbyte summary`: who allocated how much, or took how long, as a table or as JSON.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use nthbyte_report::{By, Summary};

use crate::input::Profiles;
use crate::output::{self, Output};

/// What `summary` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// What a row stands for.
    #[arg(long, value_enum, default_value_t = Rows::Function)]
    by: Rows,
    /// Show this many rows; 0 is all. A table has 20 of them without it, JSON all.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show who took how long, from the time samples. A profile that has nothing else is shown so
    /// without it; JSON always has both.
    #[arg(long, conflicts_with = "json")]
    time: bool,
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
    /// A process.
    Process,
}

impl From<Rows> for By {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Function => Self::Function,
            Rows::Line => Self::Line,
            Rows::File => Self::File,
            Rows::Type => Self::Type,
            Rows::Process => Self::Process,
        }
    }
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read, has not what is to be shown, or standard output cannot be
    /// written.
    pub fn run(self) -> Result<()> {
        let profile = self.profiles.load_quietly()?;
        let mut summary = Summary::of(&profile, self.by.into());
        let time = !self.json && (self.time || summary.is_of_time_only());
        if time {
            crate::input::require_time(self.profiles.first(), &profile)?;
            if summary.by == By::Type {
                bail!("what takes time has no type: use --by function, line, file or process");
            }
        }
        match self.top.unwrap_or(if self.json { 0 } else { 20 }) {
            0 => {}
            rows => summary.truncate(rows),
        }
        Output::Standard.write(|out| {
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &summary)?;
                writeln!(out)?;
            } else {
                let width = output::terminal_width();
                let text = match time {
                    true => summary.render_time(width),
                    false => summary.render(width),
                };
                out.write_all(text.as_bytes())?;
            }
            Ok(())
        })
    }
}
