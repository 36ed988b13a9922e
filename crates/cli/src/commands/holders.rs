//! `nthbyte holders`: who holds what is alive.

use anyhow::Result;
use clap::{Args, ValueEnum};
use nthbyte_report::{At, Holders};

use crate::json;
use crate::output::{self, Output};
use crate::progress::during;
use crate::question::Question;
use crate::question::by::NoLabel;
use crate::question::inputs::Profiles;
use crate::question::selecting;

/// What `holders` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The snapshot: of the end, of the peak, or the one nearest to a time: 10s, 500ms, 2min. By default, the one of the end,
    /// else the one with most objects.
    #[arg(long, value_name = "peak|end|TIME", value_parser = selecting::at, allow_hyphen_values = true)]
    at: Option<At>,
    /// What the rows are.
    #[arg(long, value_enum, default_value_t = Rows::Holder)]
    by: Rows,
    /// Show the tree of what holds what.
    #[arg(long, conflicts_with = "by")]
    tree: bool,
    /// Write JSON (docs/holders.md describes it).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    label: NoLabel,
}

/// What the rows are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// Single objects, and what would be freed without each.
    Holder,
    /// Types, and who holds most of each.
    Type,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read or does not say who holds what, or if standard output cannot be written.
    pub fn run(self) -> Result<()> {
        self.label.refuse(
            "holders shows who holds all that is alive; nthbyte leaks --label shows who holds what leaks for one",
        )?;
        let profile = Question::about(self.profiles.find()?).prepare()?.profile;
        let holders = during("adding up", || Holders::of(&profile, self.at))?;
        let width = output::terminal_width();
        Output::Standard.write(|out| {
            if self.json {
                return json::write(out, &holders);
            }
            let text = match (self.tree, self.by) {
                (true, _) => holders.render_tree(width),
                (false, Rows::Holder) => holders.render(width),
                (false, Rows::Type) => holders.render_types(width),
            };
            Ok(out.write_all(text.as_bytes())?)
        })
    }
}
