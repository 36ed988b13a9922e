//! `nthbyte leaks`: what accumulates, with the evidence.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use nthbyte_report::{Leaks, flamegraph};

use crate::json;
use crate::output::{self, Output};
use crate::progress::during;
use crate::question::Question;
use crate::question::by::NoBy;
use crate::question::inputs::Profiles;
use crate::question::selecting::ProgramPart;

/// What `leaks` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// Exit with status 1 if something leaks.
    #[arg(long)]
    fail: bool,
    /// The program repeated its work all the time, as a soak test does: judge it even if the run is short, or never waited.
    #[arg(long)]
    repeated: bool,
    /// Write JSON, as docs/leaks.md describes it.
    #[arg(long)]
    json: bool,
    /// Write a page with the curves of what leaks, and nothing to standard output; `-` is standard output.
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    page: Option<PathBuf>,
    /// Replace the page's file if it exists; a profile never is.
    #[arg(short, long, requires = "page")]
    force: bool,
    #[command(flatten)]
    part: ProgramPart,
    #[command(flatten)]
    by: NoBy,
}

impl Arguments {
    /// Prints the verdicts.
    ///
    /// # Errors
    /// If a profile cannot be read, or standard output cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        self.by.refuse(
            "each leak says for which labels; --label KEY=VALUE shows what leaks for one, and nthbyte summary --by label:KEY --sort alive has a row for each",
        )?;
        let inputs = self.profiles.find()?;
        let each = inputs.each().map(|inputs| {
            let name = inputs.paths()[0].display().to_string();
            let question = Question {
                selection: Some(self.part.selection()),
                ..Question::about(inputs)
            };
            Ok((name, question.prepare()?.profile))
        });
        let each = each.collect::<Result<Vec<_>>>()?;
        let leaks = during("judging", || Leaks::of(&each, self.repeated));
        if let Some(page) = self.page {
            let output = Output::beside(&page, Some(page.clone()), "html");
            inputs.protect(&output, self.force)?;
            output.write(|out| Ok(flamegraph::write_leaks(&leaks, out)?))?;
            return Ok(ExitCode::from(u8::from(self.fail && leaks.leaks)));
        }
        Output::Standard.write(|out| {
            if self.json {
                json::write(out, &leaks)?;
            } else {
                out.write_all(leaks.render(output::terminal_width()).as_bytes())?;
            }
            Ok(())
        })?;
        Ok(ExitCode::from(u8::from(self.fail && leaks.leaks)))
    }
}
