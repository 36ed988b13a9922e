//! `nthbyte holders`: who holds live objects.

use anyhow::Result;
use clap::Args;
use nthbyte_report::holders::HoldersAsked;
use nthbyte_report::{At, Holders, LabelQuery};

use crate::json;
use crate::output::{self, Output};
use crate::progress::during;
use crate::question::inputs::Profiles;
use crate::question::{Question, by, check_label, selecting};

/// What `holders` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The snapshot: of the end, of the peak, or the one nearest to a time: 10s, 500ms, 2min. By default, the one of the end,
    /// else the one with most objects.
    #[arg(long, value_name = "peak|end|TIME", value_parser = selecting::at, allow_hyphen_values = true)]
    at: Option<At>,
    /// What the rows are: single objects and what would be freed without each (holder), types and who holds most of each, or the values of
    /// a label with who holds what was allocated under each (thread, task, test, label:KEY).
    #[arg(long, value_name = "ROWS", default_value = "holder", value_parser = rows)]
    by: Rows,
    /// Show the tree of what holds what.
    #[arg(long, conflicts_with = "by")]
    tree: bool,
    /// Write JSON (docs/holders.md describes it).
    #[arg(long)]
    json: bool,
    /// Only what was allocated under this label: a key with a value, or the beginning of values with a `*` after it. May be given several
    /// times: of one key, any of its values is shown.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = selecting::label)]
    labels: Vec<LabelQuery>,
}

#[derive(Clone, PartialEq, Eq)]
enum Rows {
    /// Single objects.
    Holder,
    /// Types.
    Type,
    /// Values of the label with this key.
    Label(String),
}

fn rows(text: &str) -> Result<Rows, String> {
    match text {
        "holder" => Ok(Rows::Holder),
        "type" => Ok(Rows::Type),
        text => by::label(text)
            .map(|key| Rows::Label(key.to_owned()))
            .ok_or_else(|| "write holder, type, thread, task, test or label:KEY".to_owned()),
    }
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read or does not say who holds what, or if standard output cannot be written.
    pub fn run(self) -> Result<()> {
        let mut profile = Question::about(self.profiles.find()?).prepare()?.profile;
        let by = match &self.by {
            Rows::Label(key) => {
                check_label(&mut profile, key)?;
                Some(key.as_str())
            }
            Rows::Holder | Rows::Type => None,
        };
        let asked = HoldersAsked {
            at: self.at,
            labels: &self.labels,
            by,
        };
        let holders = during("adding up", || Holders::asked(&profile, &asked))?;
        let width = output::terminal_width();
        Output::Standard.write(|out| {
            if self.json {
                return json::write(out, &holders);
            }
            let text = match (self.tree, &self.by) {
                (true, _) => holders.render_tree(width),
                (false, Rows::Holder) => holders.render(width),
                (false, Rows::Type) => holders.render_types(width),
                (false, Rows::Label(_)) => holders.render_labels(width),
            };
            Ok(out.write_all(text.as_bytes())?)
        })
    }
}
