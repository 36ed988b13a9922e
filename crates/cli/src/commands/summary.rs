//! `nthbyte summary`: how much each function allocated, or how long it ran, as a table or as JSON.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use nthbyte_report::{By, Bytes, Killed, Sort, Summary, Time};

use crate::json;
use crate::output::{self, Output};
use crate::progress::Working;
use crate::question::by;
use crate::question::inputs::Profiles;
use crate::question::selecting::{FrameOptions, Selecting};
use crate::question::{Frames, Question, Samples, check_label};

/// What `summary` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// What a row stands for: a function, line, file, type, process, thread, host, task of asyncio, test, or label:KEY, the value of a label.
    #[arg(long, value_name = "ROWS", value_parser = by::rows, default_value_t = By::Function)]
    by: By,
    /// The order of the rows (default: own; alive with --at).
    #[arg(long, value_enum, conflicts_with = "time")]
    sort: Option<Order>,
    /// Show at most N rows; 0 for all (default: 20 in a table, all in JSON).
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show running time, from the time samples. This is the default for a profile without allocation
    /// samples; JSON always has both.
    #[arg(long)]
    time: bool,
    /// Write JSON (docs/summary-json.md describes it).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    selecting: Selecting,
}

/// The order of the rows.
#[derive(Clone, Copy, ValueEnum)]
enum Order {
    /// Bytes that it allocated itself.
    Own,
    /// Bytes that it and what it called allocated.
    Total,
    /// Bytes that it allocated itself and that were alive at the end, or at --at.
    Alive,
    /// Bytes that it allocated itself and that died young.
    Young,
    /// Allocations that it made itself.
    Allocs,
}

impl From<Order> for Sort {
    fn from(order: Order) -> Self {
        match order {
            Order::Own => Self::Own,
            Order::Total => Self::Total,
            Order::Alive => Self::Alive,
            Order::Young => Self::Young,
            Order::Allocs => Self::Allocs,
        }
    }
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the profile cannot be read or has no time samples to show, or if standard output cannot be
    /// written.
    pub fn run(self) -> Result<()> {
        let selection = self.selecting.selection();
        let default = match selection.at {
            Some(_) => Sort::Alive,
            None => Sort::Own,
        };
        let question = Question {
            selection: Some(selection),
            // JSON has both kinds.
            samples: match self.json && !self.time {
                true => Samples::All,
                false => Samples::OneKind { time: self.time },
            },
            keeps_dead: true,
            frames: self.frames.or(match self.json {
                true => Frames::All,
                false => Frames::Folded,
            }),
            says_damage: true,
            ..Question::about(self.profiles.find()?)
        };
        let (killed, mut prepared) = question.prepare_after(Killed::of)?;
        let killed = killed.map_or_else(Vec::new, |one| one.sentences());
        let by = self.by;
        if prepared.is_of_time && self.sort.is_some() {
            bail!(
                "--sort is about allocation samples, and this profile has only time samples: leave it out"
            );
        }
        if prepared.is_of_time && by == By::Type {
            bail!("time samples have no type: use --by function, line, file, process or label:KEY");
        }
        if let By::Label(key) = by {
            check_label(&mut prepared.profile, key.as_str())?;
        }
        let sort = self.sort.map_or(default, Sort::from);
        let most = match self.top.unwrap_or(if self.json { 0 } else { 20 }) {
            0 => usize::MAX,
            rows => rows,
        };
        let profile = &prepared.profile;
        let check = |summary: &Summary| match sort == Sort::Alive && !summary.knows_what_is_alive()
        {
            true => {
                let who = match profile.meta.interpreter.starts_with("RPython") {
                    true => "the collector",
                    false => "PyPy",
                };
                bail!(
                    "{who} does not say what is alive: use --sort own, and look at the column `survived`"
                )
            }
            false => Ok(()),
        };
        let working = Working::at("adding up");
        if self.json {
            let order = (sort, most);
            return Summary::with_json(profile, by, prepared.selected, order, |json| {
                drop(working);
                check(json.summary())?;
                json.summary_mut().killed = killed;
                Output::Standard.write(|out| json::write(out, json))
            });
        }
        let mut summary = Summary::first_rows(profile, by, prepared.selected, sort, most);
        summary.killed = killed;
        drop(working);
        check(&summary)?;
        Output::Standard.write(|out| {
            let width = output::terminal_width();
            let text = match prepared.is_of_time {
                true => summary.render::<Time>(width),
                false => summary.render::<Bytes>(width),
            };
            Ok(out.write_all(text.as_bytes())?)
        })
    }
}
