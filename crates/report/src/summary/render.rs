//! A summary for a terminal.

use std::fmt::Write;

use nthbyte_profile::meta::{Distances, Method};

use super::{By, RowBytes, RowTime, Summary, SummaryRow};
use crate::columns::{Column, wrap};
use crate::estimate::{Estimate, Totals};
use crate::fold::IMPORT;
use crate::quantity::{Bytes, Quantity};
use crate::text::{self, Cut, NARROWEST};
use crate::time::Time;

/// The note below a report that shows intervals.
const INTERVALS: &str = "Intervals are 95 %.";

/// How a summary shows a quantity.
pub trait Summarized: Quantity {
    /// The figures of a row.
    type Figures;

    /// The rows.
    fn rows(summary: &Summary) -> &[SummaryRow<Self::Figures>];

    /// The lines above the table, after what was run.
    fn head(summary: &Summary) -> Vec<String>;

    /// The columns of the table, with both ends of intervals if it is `wide`. Those that are not always shown have a
    /// rank; see [`Column`].
    fn columns(summary: &Summary, wide: bool) -> Vec<Column>;

    /// The lines below a table with so many rows.
    fn closing(summary: &Summary, rows: usize) -> Vec<String>;
}

impl Summarized for Bytes {
    type Figures = RowBytes;

    fn rows(summary: &Summary) -> &[SummaryRow<RowBytes>] {
        &summary.rows
    }

    fn head(summary: &Summary) -> Vec<String> {
        let mut head: Vec<String> = summary
            .selection
            .conditions()
            .map(str::to_owned)
            .into_iter()
            .collect();
        head.extend(summary.allocations());
        head.extend(summary.alive_then());
        head.extend(summary.resident());
        if summary.time.samples > 0 {
            head.push(format!("{} (--time shows them)", summary.time_samples()));
        }
        head.extend(summary.collected());
        head.extend(summary.warnings());
        head
    }

    fn columns(summary: &Summary, wide: bool) -> Vec<Column> {
        summary.columns_of_bytes(wide)
    }

    fn closing(summary: &Summary, rows: usize) -> Vec<String> {
        summary.closing(rows)
    }
}

impl Summarized for Time {
    type Figures = RowTime;

    fn rows(summary: &Summary) -> &[SummaryRow<RowTime>] {
        &summary.time.rows
    }

    fn head(summary: &Summary) -> Vec<String> {
        let time = &summary.time;
        let conditions = summary.selection.conditions();
        let conditions = conditions.map(|of| of.replacen("was allocated", "ran", 1));
        let mut head: Vec<String> = conditions.into_iter().collect();
        head.push(summary.time_samples());
        head.extend(summary.collected());
        if time.lost > 0 {
            let lost = text::lost(time.lost, "time sample");
            let all = text::grouped(time.lost + time.samples);
            head.push(format!(
                "! {lost}, of {all}: all times are too short by that part"
            ));
        }
        head.extend(summary.remarks());
        head
    }

    fn columns(summary: &Summary, wide: bool) -> Vec<Column> {
        summary.columns_of_time(wide)
    }

    fn closing(summary: &Summary, rows: usize) -> Vec<String> {
        let time = &summary.time;
        if time.rows.is_empty() {
            return Vec::new();
        }
        let left_out = time.rows_left_out + time.rows.len() - rows;
        let mut lines = Vec::new();
        if left_out > 0 {
            lines.push(summary.more(left_out));
        }
        let shown = time.rows[..rows].iter();
        lines.extend(summary.folded(shown.map(|row| row.name.as_str())));
        lines.push(INTERVALS.to_owned());
        lines
    }
}

impl Summary {
    /// The summary of a quantity as text with lines of at most `width` columns (but at least 60).
    #[must_use]
    pub fn render<Q: Summarized>(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        for line in [self.session()].into_iter().chain(Q::head(self)) {
            wrap(&mut text, &line, width);
        }
        text.push('\n');
        let rows = match Q::rows(self).is_empty() {
            true => 0,
            false => self.table::<Q>(&mut text, width),
        };
        for line in Q::closing(self, rows) {
            wrap(&mut text, &line, width);
        }
        text
    }

    /// Says how many rows are not shown.
    fn more(&self, left_out: usize) -> String {
        let [one, several] = self.by.nouns();
        let noun = if left_out == 1 { one } else { several };
        format!("… and {} more {noun}", text::grouped(left_out as u64))
    }

    /// The lines below a table of bytes with so many rows.
    fn closing(&self, rows: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let [one, _] = self.by.nouns();
        let left_out = self.rows_left_out + self.rows.len() - rows;
        let more = self.more(left_out);
        if left_out > 0 && self.left_out.all.samples == 0 {
            let call = if left_out == 1 { "calls" } else { "call" };
            lines.push(format!(
                "{more} that only {call} others (--sort total shows them)"
            ));
        } else if left_out > 0 {
            let mut line = format!("{more}: {} together", self.show(&self.bytes_left_out, true));
            if let Some(alive) = &self.alive_left_out {
                let _ = write!(line, ", {} of it alive", self.show(alive, true));
            }
            lines.push(line);
        }
        let shown = self.rows[..rows].iter();
        lines.extend(self.folded(shown.map(|row| row.name.as_str())));
        if self.distances != Distances::Every {
            // The head has one even without a row.
            let mut line = INTERVALS.to_owned();
            let nothing = text::bytes(self.unlisted.high);
            let then = match self.selection.moment().is_found() {
                // Half of the samples say what was alive.
                true => {
                    let nothing = self.of_alive.bytes(&Totals::default()).high;
                    format!("; as alive at the peak, less than {}", text::bytes(nothing))
                }
                false => String::new(),
            };
            if rows == 0 {
                // There is no list.
            } else if self.by == By::Process {
                // Processes are all listed.
                let _ = write!(line, " 0 B is less than {nothing}{then}.");
            } else {
                let _ = write!(
                    line,
                    " A {one} without any sample is not listed: it allocated less than {nothing}, at 95 %. \
                     0 B means the same{then}."
                );
            }
            lines.push(line);
        }
        lines
    }

    /// Says what the names of folded frames mean, for those among the names of the rows that are shown.
    fn folded<'a>(&self, shown: impl Iterator<Item = &'a str>) -> Option<String> {
        if !self.by.is_of_code() {
            return None;
        }
        let part = |name: &&str| match *name {
            IMPORT => format!("{IMPORT} is the machinery of imports"),
            name => format!("{name} is what starts the program"),
        };
        let shown: Vec<&str> = shown.collect();
        let named = self.folded.iter().filter(|name| shown.contains(name));
        let parts: Vec<String> = named.map(part).collect();
        (!parts.is_empty()).then(|| format!("{} (--all-frames shows it).", parts.join(", ")))
    }

    /// Whether blocks are young until a collection, so that some die young and others survive.
    pub(super) fn has_collector(&self) -> bool {
        let without = [Method::Preload, Method::GlobalAllocator];
        without.iter().all(|one| one.name() != self.method)
    }

    /// The command, the interpreter, and the duration.
    fn session(&self) -> String {
        let command = text::fit(&self.command.join(" "), 200, Cut::End);
        let mut interpreters: Vec<&str> = Vec::new();
        for process in &self.processes {
            if !interpreters.contains(&process.interpreter.as_str()) {
                interpreters.push(&process.interpreter);
            }
        }
        let interpreter = text::clean(&interpreters.join(" and "));
        let took = text::duration(self.duration_nanos);
        let tags = match &self.tags[..] {
            [] => String::new(),
            tags => format!(" · {}", text::fit(&tags.join(" "), 200, Cut::End)),
        };
        let session = format!("{command} · {interpreter}{tags} · {took}");
        match self.processes.len() {
            0 | 1 => session,
            several => format!("{session} · {several} processes"),
        }
    }

    fn time_samples(&self) -> String {
        let samples = text::counted(self.time.samples, "time sample");
        let rate = match self.time.hz {
            0 => String::new(),
            hz => format!(", {} a second", text::grouped(hz.into())),
        };
        let gil = match self.time.gil_held {
            Some(share) => format!("; GIL held in {}", text::percent(share)),
            None => String::new(),
        };
        format!("{samples}{rate}{gil}")
    }

    fn allocations(&self) -> [String; 2] {
        let periods = self.periods.iter();
        let periods: Vec<String> = periods.map(|&period| text::bytes(period as f64)).collect();
        let periods = periods.join(" or ");
        let way = match self.distances {
            Distances::Every => "all recorded".to_owned(),
            _ if self.method == Method::GcHooks.name() => {
                format!("at minor collections, about every {periods}")
            }
            Distances::Fixed => format!("exactly every {periods}"),
            Distances::Exponential => format!("one every {}", self.periods_text),
        };
        // Not the agent's count: rows, pages and exports add up to the estimate.
        let allocated = self.show(&self.all.bytes, true);
        let what = if self.distances == Distances::Every {
            "allocation"
        } else {
            "sample"
        };
        let samples = text::counted(self.samples, what);
        [
            format!("{allocated} allocated · {samples}, {way}"),
            self.lifetimes(),
        ]
    }

    /// What was alive at the moment, if it is not the end.
    fn alive_then(&self) -> Option<String> {
        let alive = self.all.alive.filter(|_| !self.selection.is_at_end())?;
        let alive = self.show(&alive, true);
        Some(format!("alive {}: {alive}", self.selection.when()))
    }

    /// The largest resident set, and how much of it the profile explains.
    fn resident(&self) -> Option<String> {
        let rss = self.peak_rss.filter(|&rss| rss > 0)?;
        let upper = if self.processes.len() > 1 {
            "at most "
        } else {
            ""
        };
        let mut line = format!("peak RSS {upper}{}", text::bytes(rss as f64));
        if let Some(alive) = &self.alive_at_peak_rss {
            let share = if alive.low > rss as f64 {
                "more than RSS, so part of it was not in memory (never written, or swapped out)"
                    .to_owned()
            } else if alive.estimate > rss as f64 {
                "about all of it".to_owned()
            } else {
                text::percent(alive.estimate / rss as f64)
            };
            let alive = self.show(alive, true);
            let _ = write!(line, "; what was alive then had asked for {alive}: {share}");
        }
        Some(line)
    }

    fn collected(&self) -> Option<String> {
        let collections = text::counted(self.collections.count, "collection");
        let took = text::duration(self.collections.duration_nanos);
        (self.collections.count > 0).then(|| format!("{collections} took {took}"))
    }

    fn lifetimes(&self) -> String {
        let all = &self.all;
        let whole = all.bytes.estimate;
        let mut parts = Vec::new();
        let freed = if self.has_collector() {
            "died later"
        } else {
            "freed"
        };
        for (lifetime, what) in [
            (&all.died_young, "died young"),
            (&all.freed, freed),
            (&all.survived, "survived the first collection"),
            (&all.still_live, "alive at the end"),
        ] {
            if lifetime.estimate > 0.0 {
                let share = text::percent(lifetime.estimate / whole);
                parts.push(format!("{share} {what}: {}", self.show(lifetime, true)));
            }
        }
        if parts.is_empty() {
            parts.push("no samples".to_owned());
        }
        parts.join(" · ")
    }

    fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.lost > 0 {
            let lost = text::lost(self.lost, "sample");
            lines.push(format!(
                "! {lost}: those beside them stand for them, and intervals are wider"
            ));
        }
        let lost_other = self.lost_other - self.time.lost;
        if lost_other > 0 {
            let lost = text::lost(lost_other, "other event");
            lines.push(format!("! {lost}: lifetimes of objects may be wrong"));
        }
        lines.extend(self.remarks());
        lines
    }

    /// Warnings and notes on the whole profile.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.killed.is_empty() {
            let said = self.killed.join(" ");
            lines.push(format!("! {}", text::fit(&said, 500, Cut::End)));
        }
        if !self.complete && (self.killed.is_empty() || self.processes.len() > 1) {
            lines.push(self.incomplete());
        }
        for damage in &self.damage {
            let what = text::fit(&damage.what, 300, Cut::End);
            lines.push(format!("! damage at byte {}: {what}", damage.offset));
        }
        if let Some(dropped) = &self.dropped {
            lines.push(format!("note: {}", dropped.describe()));
        }
        for note in &self.notes {
            lines.push(format!("note: {}", text::fit(note, 500, Cut::End)));
        }
        lines
    }

    fn incomplete(&self) -> String {
        let cut = self.processes.iter().filter(|process| !process.complete);
        let cut: Vec<String> = cut.map(|process| process.pid.to_string()).collect();
        match (self.processes.len(), &cut[..]) {
            (0 | 1, _) if self.processes.iter().any(|one| one.ended_by.is_some()) => {
                let reasons = self
                    .processes
                    .iter()
                    .filter_map(|one| one.ended_by.as_deref());
                let reason: String = reasons.collect();
                format!(
                    "! the profile is incomplete: {}",
                    text::fit(&reason, 300, Cut::End)
                )
            }
            (0 | 1, _) | (_, []) => {
                "! the profile is incomplete: the program was killed, or is still running"
                    .to_owned()
            }
            (all, [one]) => format!(
                "! of {all} profiles, that of process {one} is incomplete: it was killed, or is still running"
            ),
            (all, _) => {
                let shown = cut[..cut.len().min(10)].join(", ");
                let more = if cut.len() > 10 { ", …" } else { "" };
                format!(
                    "! of {all} profiles, {} are incomplete: the processes were killed, or are still running: \
                     {shown}{more}",
                    cut.len()
                )
            }
        }
    }

    /// An estimate of bytes with its interval: both ends, or the larger distance to an end. If the
    /// interval is too wide for that, only its ends.
    pub(super) fn show(&self, bytes: &Estimate, wide: bool) -> String {
        let shown = text::bytes(bytes.estimate);
        if self.distances == Distances::Every || (bytes.estimate == 0.0 && !wide) {
            shown
        } else if wide && bytes.estimate == 0.0 {
            format!("{shown} ({})", text::wide_range(bytes.low, bytes.high))
        } else if wide {
            let range = text::range(bytes.low, bytes.estimate, bytes.high);
            format!("{shown} ({range})")
        } else {
            bytes.with_error()
        }
    }
}
