//! `nthbyte memory`: what the resident set was made of.

use anyhow::Result;
use clap::Args;
use nthbyte_profile::event::Nanos;
use nthbyte_report::{At, MemoryReport};

use crate::json;
use crate::output::{self, Output};
use crate::progress::during;
use crate::question::Question;
use crate::question::by::{NoBy, NoLabel, NoPlace};
use crate::question::inputs::Profiles;
use crate::question::selecting::{self, OfDomain};

/// What `memory` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The moment: when the resident set was largest (peak), the end, or a time: 10s, 500ms, 2min.
    #[arg(long, value_name = "peak|end|TIME", value_parser = selecting::at, allow_hyphen_values = true, default_value = "peak")]
    at: At,
    /// Only moments at this time or later: 10s, 500ms, 2min.
    #[arg(long, value_name = "TIME", value_parser = selecting::time, allow_hyphen_values = true)]
    since: Option<Nanos>,
    /// Only moments before this time.
    #[arg(long, value_name = "TIME", value_parser = selecting::time, allow_hyphen_values = true)]
    until: Option<Nanos>,
    /// Write JSON (docs/memory.md describes it).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    domain: OfDomain,
    #[command(flatten)]
    label: NoLabel,
    #[command(flatten)]
    by: NoBy,
    #[command(flatten)]
    place: NoPlace,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read or does not say what memory is made of, or if standard output cannot be written.
    pub fn run(self) -> Result<()> {
        let why = "memory shows what the kernel counts for the whole process; nthbyte summary --at peak takes labels, threads and places";
        self.label.refuse(why)?;
        self.by.refuse(why)?;
        self.place.refuse(why)?;
        let profile = Question::about(self.profiles.find()?).prepare()?.profile;
        let range = self.since.unwrap_or(Nanos(0))..self.until.unwrap_or(Nanos(u64::MAX));
        let mut memory = during("adding up", || {
            MemoryReport::within(&profile, self.at, &range)
        })?;
        memory.keep_domain(self.domain.only());
        Output::Standard.write(|out| {
            if self.json {
                json::write(out, &memory)?;
            } else {
                out.write_all(memory.render(output::terminal_width()).as_bytes())?;
            }
            Ok(())
        })
    }
}
