//! `nthbyte diff`: what changed from one profile to another, and whether that is real.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use nthbyte_profile::Profile;
use nthbyte_report::diff::{Diff, DiffOptions, GrowthLimit, Measure, write_page};
use nthbyte_report::holders::{self, Naming};
use nthbyte_report::{By, LabelQuery, SelectionError};

use crate::json;
use crate::output::{self, Output, say};
use crate::progress::Progress;
use crate::question::by::{self, HOST, THREAD};
use crate::question::inputs::{self, Inputs};
use crate::question::selecting::{self, FrameOptions, ProgramPart};
use crate::question::{Frames, Question, check_label};

/// What `diff` takes.
#[derive(Args)]
#[command(
    override_usage = "nthbyte diff [OPTIONS] OLD NEW\n       nthbyte diff [OPTIONS] OLD… -- NEW…\n       nthbyte diff [OPTIONS] --old-label KEY=VALUE --new-label KEY=VALUE PROFILE…"
)]
pub struct Arguments {
    /// The old profile and the new one; or before `--` several runs of the old program, and after it of
    /// the new one.
    #[arg(required = true, value_name = "PROFILE")]
    profiles: Vec<PathBuf>,
    /// Several runs of the new program; the same as naming them after `--`.
    #[arg(long, num_args = 1.., value_name = "NEW")]
    new: Vec<PathBuf>,
    /// Compare the runs with this label with those that have --new-label, of all profiles that are given. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = selecting::label, requires = "new_labels", conflicts_with = "new")]
    old_label: Vec<LabelQuery>,
    /// The label of the new runs. `host=NAME` is the machine, or the container.
    #[arg(long = "new-label", id = "new_labels", value_name = "KEY=VALUE", value_parser = selecting::label, requires = "old_label")]
    new_label: Vec<LabelQuery>,
    /// Each profile with the profiles of the processes that its program started: app.1235.nthb beside app.nthb. This is
    /// the default, but for profiles of one run that are named together.
    #[arg(long)]
    all: bool,
    /// Only the profiles that are named.
    #[arg(long, conflicts_with = "all")]
    alone: bool,
    /// What a row stands for: a function, line, file, type, process, thread, host, task of asyncio, test, or label:KEY, the value of a label.
    #[arg(long, value_name = "ROWS", value_parser = by::rows, default_value_t = By::Function)]
    by: By,
    /// Compare who holds what is alive: the last snapshots of both sides, or with one profile, its first snapshot and its last one.
    #[arg(long, conflicts_with_all = ["by", "total", "what", "flamegraph"])]
    holders: bool,
    /// What to compare: it sorts the rows, and --fail-on checks it (default: bytes, or CPU time if there are no allocation samples).
    #[arg(long, value_enum, value_name = "WHAT")]
    what: Option<What>,
    /// Count what a function called as its own.
    #[arg(long)]
    total: bool,
    /// Show at most N rows; 0 for all (default: 20 in a table, all in JSON).
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Treat files under the folder OLD of the old profiles as those under NEW of the new ones. May be given several times.
    #[arg(long, value_name = "OLD=NEW", value_parser = prefix)]
    strip_prefix: Vec<(String, String)>,
    /// Exit with status 1 if the growth is certainly more than this: +5%, +10MiB, or for one row, NAME:+5%. May
    /// be given several times.
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    fail_on: Vec<GrowthLimit>,
    /// Write a page like `nthbyte flamegraph`'s, where red grew and blue shrank; `-` writes it to standard output, instead of the report.
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    flamegraph: Option<PathBuf>,
    /// Replace the page's file if it exists; a profile never is.
    #[arg(short, long, requires = "flamegraph")]
    force: bool,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    part: ProgramPart,
    /// Write JSON, as docs/diff.md describes it.
    #[arg(long)]
    json: bool,
}

/// What can be compared.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Bytes allocated.
    Bytes,
    /// Number of allocations.
    #[value(alias = "allocs")]
    Allocations,
    /// Bytes alive at the end.
    Alive,
    /// Bytes alive when most were.
    Peak,
    /// Bytes that died young.
    Young,
    /// CPU time.
    Cpu,
}

impl From<What> for Measure {
    fn from(what: What) -> Self {
        match what {
            What::Bytes => Self::Bytes,
            What::Allocations => Self::Allocations,
            What::Alive => Self::Alive,
            What::Peak => Self::Peak,
            What::Young => Self::Young,
            What::Cpu => Self::Cpu,
        }
    }
}

fn prefix(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err("write it OLD=NEW".to_owned()),
    }
}

impl Arguments {
    /// Prints the comparison, and returns 1 if a limit is passed.
    ///
    /// # Errors
    /// If a profile cannot be read, lacks the compared figures, or standard output cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let (old, new) = self.sides()?;
        let (old, new) = self.runs(old, new)?;
        let read = [paths_of(&old), paths_of(&new)].concat();
        let options = DiffOptions {
            by: self.by,
            inclusive: self.total || self.holders,
            prefixes: self.strip_prefix.clone(),
            limits: self.fail_on.clone(),
        };
        let (mut old, mut new) = (
            self.prepare(old, &self.old_label)?,
            self.prepare(new, &self.new_label)?,
        );
        if self.holders {
            let is_one = self.profiles.len() == 1 && self.new.is_empty();
            for (profiles, is_first) in [(&mut old, is_one), (&mut new, false)] {
                for profile in profiles {
                    let at = match is_first {
                        true => holders::first(profile),
                        false => None,
                    };
                    *profile = holders::as_profile(profile, at, Naming::Path)?;
                }
            }
        }
        if let By::Label(key) = options.by {
            let key = key.as_str();
            let has_key = |profile: &Profile| profile.label_keys().contains(&key);
            if [THREAD, HOST].contains(&key) || !old.iter().chain(&new).any(has_key) {
                for profile in old.iter_mut().chain(&mut new) {
                    check_label(profile, key)?;
                }
            }
        }
        let mut diff = Diff::of(&old, &new, &options);
        let what = match self.holders {
            true => Some(Measure::Alive),
            false => self.what.map(Measure::from),
        };
        if let Some(what) = what {
            if !diff.measures.contains(&what) {
                bail!(
                    "{} cannot be compared: only one side has recorded it, or none",
                    what.name()
                );
            }
            diff.sort(what);
        }
        if diff.measures.is_empty() {
            bail!("the profiles cannot be compared: only one side has allocation samples");
        }
        if diff.what == Measure::Cpu && options.by == By::Type {
            bail!("time samples have no type: use --by function, line, file, process or label:KEY");
        }
        let outcomes = diff.check().context("--fail-on")?;
        match self.top.unwrap_or(if self.json { 0 } else { 20 }) {
            0 => {}
            rows => diff.truncate(rows),
        }
        let page = self
            .flamegraph
            .map(|path| Output::beside(Path::new(""), Some(path), "html"));
        if let Some(page) = &page {
            page.protect(&read, self.force)?;
            let progress = Progress::steps("writing");
            page.write(|out| {
                let mut progress = |done, total| progress.at(done, total);
                Ok(write_page(
                    &old,
                    &new,
                    &options.prefixes,
                    out,
                    &mut progress,
                )?)
            })?;
        }
        if page != Some(Output::Standard) {
            Output::Standard.write(|out| {
                if self.json {
                    json::write(out, &diff)?;
                } else {
                    out.write_all(diff.render(output::terminal_width()).as_bytes())?;
                }
                Ok(())
            })?;
        }
        for outcome in &outcomes {
            say!("nthbyte: {}", outcome.text);
        }
        let fails = outcomes.iter().any(|outcome| outcome.exceeded);
        Ok(ExitCode::from(u8::from(fails)))
    }

    /// The runs of either side. Processes of one run that are compared are taken alone.
    fn runs(&self, old: &[PathBuf], new: &[PathBuf]) -> Result<(Vec<Inputs>, Vec<Inputs>)> {
        if !self.old_label.is_empty() {
            let all = inputs::runs(old, self.all, self.alone)?;
            return Ok((all.clone(), all));
        }
        let both = |alone| -> Result<_> {
            let runs = |paths| inputs::runs(paths, self.all, alone);
            Ok((runs(old)?, runs(new)?))
        };
        let found = both(self.alone)?;
        let (in_old, in_new) = (paths_of(&found.0), paths_of(&found.1));
        let is_in_both = |named: &[PathBuf], others: &[PathBuf], all: &[PathBuf]| {
            named
                .iter()
                .any(|path| all.contains(path) && !others.contains(path))
        };
        if is_in_both(old, new, &in_new) || is_in_both(new, old, &in_old) {
            return both(true);
        }
        Ok(found)
    }

    /// The profile of each run that has these labels.
    fn prepare(&self, runs: Vec<Inputs>, labels: &[LabelQuery]) -> Result<Vec<Profile>> {
        let mut selection = self.part.selection();
        selection.labels.extend_from_slice(labels);
        let prepare = |run| {
            let question = Question {
                selection: Some(selection.clone()),
                frames: self.frames.or(match self.json {
                    true => Frames::All,
                    false => Frames::Folded,
                }),
                says_damage: true,
                ..Question::about(run)
            };
            Ok(question.prepare()?.profile)
        };
        let mut profiles = Vec::new();
        let mut missing = None;
        for run in runs {
            match prepare(run) {
                Ok(profile) => profiles.push(profile),
                // A run of the other side, or of neither.
                Err(error) if !labels.is_empty() && is_without_label(&error) => {
                    missing.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match missing {
            Some(error) if profiles.is_empty() => {
                let labels: Vec<String> = labels.iter().map(LabelQuery::text).collect();
                Err(error.context(format!("no run has the label {}", labels.join(", "))))
            }
            _ => Ok(profiles),
        }
    }

    /// The profiles of either side.
    fn sides(&self) -> Result<(&[PathBuf], &[PathBuf])> {
        match (&self.profiles[..], &self.new[..]) {
            (all, []) if !self.old_label.is_empty() => Ok((all, all)),
            ([old, new], []) => Ok((std::slice::from_ref(old), std::slice::from_ref(new))),
            ([one], []) if self.holders => {
                Ok((std::slice::from_ref(one), std::slice::from_ref(one)))
            }
            ([_], []) => Err(wrong_number(
                "two profiles are needed: nthbyte diff OLD NEW",
            )),
            (several, []) => Err(wrong_number(&format!(
                "{} profiles are given, and it is not said which are old: nthbyte diff OLD… -- NEW…",
                several.len()
            ))),
            (old, new) => Ok((old, new)),
        }
    }
}

fn is_without_label(error: &anyhow::Error) -> bool {
    let found = error.downcast_ref();
    matches!(found, Some(SelectionError::NoLabel { .. }))
}

fn paths_of(runs: &[Inputs]) -> Vec<PathBuf> {
    runs.iter().flat_map(Inputs::paths).cloned().collect()
}

/// The command line is wrong, so that the exit status is not `--fail-on`'s.
fn wrong_number(text: &str) -> anyhow::Error {
    clap::Error::raw(ErrorKind::WrongNumberOfValues, text).into()
}

/// The command line with `--new` for the `--` of `nthbyte diff OLD… -- NEW…`, so that options may follow the profiles.
pub fn with_new_named(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == "diff")
        && let Some(separator) = arguments.iter_mut().find(|word| *word == OsStr::new("--"))
    {
        *separator = "--new".into();
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_separator_is_new() {
        let of = |words: &str| {
            let words = words.split(' ').map(OsString::from);
            let words = with_new_named(words).into_iter();
            let words: Vec<String> = words
                .map(|word| word.into_string().expect("text"))
                .collect();
            words.join(" ")
        };
        assert_eq!(
            of("nthbyte diff a b -- c --json"),
            "nthbyte diff a b --new c --json"
        );
        assert_eq!(of("nthbyte diff a b"), "nthbyte diff a b");
        assert_eq!(of("nthbyte summary -- --odd"), "nthbyte summary -- --odd");
    }
}
