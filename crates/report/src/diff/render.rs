//! A comparison for a terminal.

use std::fmt::Write;

use super::{Change, Diff, DiffRow, Measure, RATE, Sensitivity, SideFacts, Which, sides};
use crate::columns::{self, Column, Label, Named, place, wrap};
use crate::estimate::Estimate;
use crate::summary::By;
use crate::text::{self, Cut, NARROWEST};

/// From this width on, the interval has a column of its own.
const WITH_INTERVAL: usize = 90;

/// The number of that column.
const INTERVAL: usize = 3;

/// The number of rows without a significant difference that are shown.
const OTHERS: usize = 5;

impl Diff {
    /// The comparison as text with lines of at most `width` columns (but at least 60).
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        for (name, side) in [("old", &self.old), ("new", &self.new)] {
            wrap(
                &mut text,
                &format!("{name}: {}", described(side, self.exact)),
                width,
            );
        }
        for note in self.remarks() {
            wrap(
                &mut text,
                &format!("note: {}", text::fit(&note, 500, Cut::End)),
                width,
            );
        }
        text.push('\n');
        self.totals_table(&mut text, width);
        text.push('\n');
        self.tables(&mut text, width);
        self.closing(&mut text, width);
        text
    }

    fn remarks(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        for folder in self.folders.iter().take(3) {
            let (old, new) = (text::clean(&folder.old), text::clean(&folder.new));
            notes.push(format!(
                "files under {old} were matched with those under {new}"
            ));
        }
        if self.folders.len() > 3 {
            let more = self.folders.len() - 3;
            notes.push(format!("and so were those of {more} more folders"));
        }
        for file in self.renamed.iter().take(3) {
            let (old, new) = (text::clean(&file.old), text::clean(&file.new));
            notes.push(format!(
                "{old} → {new}: taken for one file, by its functions"
            ));
        }
        if self.renamed.len() > 3 {
            notes.push(format!("and so were {} more files", self.renamed.len() - 3));
        }
        if self.moved > 0 {
            let what = if self.moved == 1 {
                "row was"
            } else {
                "rows were"
            };
            notes.push(format!(
                "{} {what} matched though moved to another line or file",
                self.moved
            ));
        }
        notes
    }

    fn totals_table(&self, text: &mut String, width: usize) {
        let rows: Vec<(Measure, &Change)> = self
            .totals
            .iter()
            .map(|(&measure, change)| (measure, change))
            .collect();
        let label = |at: usize| {
            let (measure, change) = rows[at];
            let verdict = match change {
                change if change.difference.estimate == 0.0 => "",
                change if change.significant => "",
                _ => ": may be chance",
            };
            // The other reports show the estimate.
            let is_counted = measure == Measure::Bytes
                && !self.exact
                && self.old.bytes_counted
                && self.new.bytes_counted;
            let counted = if is_counted { ", counted" } else { "" };
            let name = format!("{}{counted}{verdict}", described_measure(measure));
            Label::Name(name.into())
        };
        let figures: Vec<[String; 5]> = rows
            .iter()
            .map(|(measure, change)| figures(*measure, change, None))
            .collect();
        table(text, width, "all", &figures, label);
    }

    fn tables(&self, text: &mut String, width: usize) {
        let passes = |row: &&DiffRow| {
            row.changes
                .get(self.what)
                .is_some_and(|change| change.significant)
        };
        let (significant, others): (Vec<&DiffRow>, Vec<&DiffRow>) =
            self.rows.iter().partition(passes);
        let named = described_measure(self.what);
        let others: Vec<&DiffRow> = others
            .into_iter()
            .filter(|row| {
                row.changes
                    .get(self.what)
                    .is_some_and(|change| change.difference.estimate != 0.0)
            })
            .collect();
        let all = self.rows.len() + self.rows_left_out;
        let kind = kind(self.by);
        let head = match self.significant_rows {
            0 if others.is_empty() => format!("No {kind} of {all} differs in {named}."),
            0 => format!("No {kind} of {all} differs in {named} by more than chance explains."),
            1 => format!("1 {kind} of {all} differs in {named}:"),
            number => format!("{number} of {all} {} differ in {named}:", kinds(self.by)),
        };
        wrap(text, &head, width);
        if !significant.is_empty() {
            self.rows_table(text, width, &significant);
        }
        let left_out = self.significant_rows - significant.len();
        if left_out > 0 {
            let _ = writeln!(text, "… and {left_out} more");
        }
        let shown = if significant.is_empty() {
            others.len()
        } else {
            others.len().min(OTHERS)
        };
        if shown > 0 {
            text.push_str("\nThe largest differences that may be chance:\n");
            self.rows_table(text, width, &others[..shown]);
        }
    }

    fn rows_table(&self, text: &mut String, width: usize, rows: &[&DiffRow]) {
        let figures: Vec<[String; 5]> = rows
            .iter()
            .map(|row| figures(self.what, &row.changes[self.what], row.only))
            .collect();
        table(text, width, kind(self.by), &figures, |at| {
            self.label(rows[at])
        });
    }

    /// The name of a row with its place, and its old place.
    fn label<'a>(&self, row: &'a DiffRow) -> Label<'a> {
        let was = match &row.old_place {
            Some(old) if is_elsewhere(&old.file, &row.file) => {
                format!(" (was {})", place(&old.file, old.line, 1))
            }
            Some(old) if old.line != row.line => format!(" (was :{})", old.line),
            _ => String::new(),
        };
        let place = Named {
            name: &row.name,
            file: &row.file,
            line: row.line,
            more: was.into(),
        };
        match self.by {
            By::Type | By::Process | By::Label(_) => Label::Name(row.name.as_str().into()),
            By::File => Label::File(&row.name),
            By::Function => Label::Function(place),
            By::Line => Label::Line(place),
        }
    }

    /// Which change could have been found, and what would find a smaller one.
    fn could_have_found(&self) -> Option<String> {
        let Sensitivity {
            row,
            growth,
            with_three_runs,
            with_period,
        } = *self.sensitivity.get(&self.what)?;
        let kind = kind(self.by);
        let of = amount(self.what, row);
        let grown = |part: f64| format!("+{}", text::percent(part));
        let mut text = match growth {
            Some(growth) => format!(
                "Changes below {} of a {kind} of {of} cannot be told from chance here.",
                text::percent(growth)
            ),
            None => format!("No change of a {kind} of {of} can be told from chance here."),
        };
        let runs = with_three_runs.map(|part| format!("3 runs of each side ({})", grown(part)));
        let period = with_period.map(|(every, part)| {
            let every = text::whole_size(every);
            format!("--every {every} ({})", grown(part))
        });
        let ways: Vec<String> = runs.into_iter().chain(period).collect();
        if !ways.is_empty() {
            let _ = write!(text, " To find less: {}.", ways.join(", or "));
        }
        Some(text)
    }

    fn closing(&self, text: &mut String, width: usize) {
        let percent = RATE * 100.0;
        let runs = self.old.runs + self.new.runs;
        let line = if self.exact && runs == 2 {
            "Every allocation was recorded: the differences of these two runs are exact.".to_owned()
        } else {
            let several = match runs {
                2 => {
                    "With one run of each side, it is not known what differs from run to run for other reasons."
                }
                _ => "Figures are means over the runs.",
            };
            format!(
                "Intervals are 95 %. Of the {} that are said to differ, up to {percent} % may differ by chance. {several}",
                kinds(self.by)
            )
        };
        text.push('\n');
        if let Some(could) = self.could_have_found() {
            wrap(text, &could, width);
        }
        wrap(text, &line, width);
    }
}

fn described(side: &SideFacts, exact: bool) -> String {
    let command = text::fit(&side.command.join(" "), 200, Cut::End);
    let interpreter = text::clean(&side.interpreter);
    let mut parts = vec![command, interpreter];
    if side.runs > 1 {
        parts.push(format!(
            "{} runs of {}",
            side.runs,
            text::duration(side.duration_nanos)
        ));
    } else {
        parts.push(text::duration(side.duration_nanos));
    }
    if side.profiles > side.runs {
        parts.push(format!("{} processes", side.profiles));
    }
    if side.samples > 0 {
        let samples = text::counted(side.samples, "sample");
        let allocations = text::counted(side.samples, "allocation");
        parts.push(if exact {
            format!("all {allocations} recorded")
        } else if side.period <= 1 {
            format!("{allocations} recorded")
        } else {
            format!("{samples}, one every {}", side.periods_text)
        });
    }
    parts.join(" · ")
}

const fn kind(by: By) -> &'static str {
    match by {
        By::Function => "function",
        By::Line => "line",
        By::File => "file",
        By::Type => "type",
        By::Process => "process",
        By::Label(key) => key.as_str(),
    }
}

const fn kinds(by: By) -> &'static str {
    match by {
        By::Function => "functions",
        By::Line => "lines",
        By::File => "files",
        By::Type => "types",
        By::Process => "processes",
        By::Label(_) => "values",
    }
}

pub(super) const fn described_measure(measure: Measure) -> &'static str {
    match measure {
        Measure::Bytes => "bytes allocated",
        Measure::Allocations => "allocations",
        Measure::Alive => "bytes alive at the end",
        Measure::Peak => "bytes alive at the peak",
        Measure::Young => "bytes that died young",
        Measure::Cpu => "CPU time",
    }
}

/// An amount without a sign.
pub(super) fn amount(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Allocations => text::count(value),
        Measure::Cpu if value == 0.0 => "0 s".to_owned(),
        Measure::Cpu => text::duration((value * 1e9) as u64),
        _ => text::bytes(value),
    }
}

pub(super) fn signed(measure: Measure, value: f64) -> String {
    format!("{}{}", text::sign(value), amount(measure, value.abs()))
}

/// A part of the old figure, with a sign.
pub(super) fn relative(part: f64) -> String {
    if part >= 9.995 {
        return format!("×{}", text::count(part + 1.0));
    }
    format!("{}{}", text::sign(part), text::percent(part.abs()))
}

pub(super) fn interval(measure: Measure, of: &Estimate) -> String {
    match measure {
        Measure::Allocations | Measure::Cpu => {
            format!("{} … {}", signed(measure, of.low), signed(measure, of.high))
        }
        _ => text::signed_range(of.low, of.high),
    }
}

/// A row's figures: old, new, difference, interval, relative change.
fn figures(measure: Measure, change: &Change, only: Option<Which>) -> [String; 5] {
    let certain = sides::is_certain(&change.difference);
    let relative = match only {
        Some(Which::New) => "new".to_owned(),
        Some(Which::Old) => "gone".to_owned(),
        None => change.relative.map_or(String::new(), relative),
    };
    [
        amount(measure, change.old.estimate),
        amount(measure, change.new.estimate),
        signed(measure, change.difference.estimate),
        if certain {
            String::new()
        } else {
            interval(measure, &change.difference)
        },
        relative,
    ]
}

/// Whether these are not one file in two folders.
fn is_elsewhere(one: &str, other: &str) -> bool {
    let name = |file: &str| file.rsplit('/').next().map(str::to_owned);
    name(one) != name(other)
}

/// Writes a table of rows' figures, and the label of each row.
fn table<'a>(
    text: &mut String,
    width: usize,
    heading: &str,
    figures: &[[String; 5]],
    label: impl Fn(usize) -> Label<'a>,
) {
    let headings = [
        ("old", Some(1)),
        ("new", Some(2)),
        ("difference", None),
        ("95 % interval", Some(3)),
        ("change", None),
    ];
    let columns = headings.into_iter().enumerate();
    let columns = columns.filter(|(at, _)| *at != INTERVAL || width >= WITH_INTERVAL);
    let columns = columns.map(|(at, (heading, rank))| {
        let cells = figures.iter().map(|row| row[at].clone());
        Column::new(heading, rank, cells.collect())
    });
    columns::table(text, width, columns.collect(), heading, label);
}
