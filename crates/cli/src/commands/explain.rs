//! `nthbyte explain`: the answers first, a screen of them.

use anyhow::Result;
use clap::Args;
use nthbyte_report::explain::{ExplainOptions, Resident};
use nthbyte_report::{Explanation, Selection};

use crate::json;
use crate::output::{self, Output};
use crate::progress::during;
use crate::question::Question;
use crate::question::by::NoBy;
use crate::question::inputs::Profiles;
use crate::question::selecting::ProgramPart;

/// What `explain` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The program repeated its work all the time, as a soak test does: say what leaks even if the run is short, or never waited.
    #[arg(long)]
    repeated: bool,
    /// Write JSON, as docs/explain.md describes it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    part: ProgramPart,
    #[command(flatten)]
    by: NoBy,
}

impl Arguments {
    /// Prints the answers.
    ///
    /// # Errors
    /// If a profile cannot be read, or standard output cannot be written.
    pub fn run(self) -> Result<()> {
        self.by.refuse(
            "explain names the value of a label with most by itself; nthbyte summary has a row for each",
        )?;
        let profiles = self.profiles;
        let selection = self.part.selection();
        let is_part = selection != Selection::default();
        let question = Question {
            selection: Some(selection),
            says_damage: true,
            ..Question::about(profiles.find()?)
        };
        // What the resident set is made of is known of the whole program only.
        let (resident, prepared) = question.prepare_after(|whole| {
            is_part.then(|| during("looking for the peak", || Resident::of(whole)))
        })?;
        let asked = ExplainOptions {
            words: [profiles.words(), self.part.words()].concat(),
            more_processes: profiles.more_processes(),
            repeated: self.repeated,
        };
        let explanation = during("answering", || match resident {
            Some(whole) => Explanation::of_part(&prepared.profile, &asked, whole),
            None => Explanation::of(&prepared.profile, &asked),
        });
        Output::Standard.write(|out| {
            if self.json {
                json::write(out, &explanation)?;
            } else {
                out.write_all(
                    explanation
                        .render(output::terminal_width(), output::style())
                        .as_bytes(),
                )?;
            }
            Ok(())
        })
    }
}
