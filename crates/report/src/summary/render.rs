//! A summary for a terminal.

use std::fmt::Write;

use nthbyte_profile::meta::{Distances, Method};

use super::{By, Row, Summary, TimeRow};
use crate::estimate::Estimate;
use crate::text::{self, Cut, GAP, NARROWEST};

/// From this width on, both ends of an interval are shown; below it, the larger distance (`±5%`).
const WIDE: usize = 120;

impl Summary {
    /// The summary as text with lines of at most `width` columns (but at least 60).
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        let mut head = vec![self.session()];
        head.extend(self.allocations());
        if self.time.samples > 0 {
            head.push(format!("{} (--time shows them)", self.time_samples()));
        }
        head.extend(self.collected());
        head.extend(self.warnings());
        for line in head {
            wrap(&mut text, &line, width);
        }
        text.push('\n');
        self.table(&mut text, width);
        if self.rows_left_out > 0 {
            let _ = writeln!(text, "… and {} more", self.rows_left_out);
        }
        if self.distances != Distances::Every {
            let mut line = "Intervals are 95 %.".to_owned();
            // Processes are all listed.
            if self.by != By::Process {
                let unlisted = text::bytes(self.unlisted.high);
                let _ = write!(
                    line,
                    " Anything without a sample may have allocated up to {unlisted}."
                );
            }
            wrap(&mut text, &line, width);
        }
        text
    }

    /// The summary of the time samples as text, with lines of at most `width` columns (but at
    /// least 60).
    #[must_use]
    pub fn render_time(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        let mut head = vec![self.session(), self.time_samples()];
        head.extend(self.collected());
        if self.time.lost > 0 {
            let lost = text::grouped(self.time.lost);
            head.push(format!(
                "! {lost} time samples were lost: times are too short"
            ));
        }
        head.extend(self.remarks());
        for line in head {
            wrap(&mut text, &line, width);
        }
        text.push('\n');
        self.time_table(&mut text, width);
        if self.time.rows_left_out > 0 {
            let _ = writeln!(text, "… and {} more", self.time.rows_left_out);
        }
        text.push_str("Intervals are 95 %.\n");
        text
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
        let session = format!("{command} · {interpreter} · {took}");
        match self.processes.len() {
            0 | 1 => session,
            several => format!("{session} · {several} processes"),
        }
    }

    fn time_samples(&self) -> String {
        let samples = text::grouped(self.time.samples);
        let rate = match self.time.hz {
            0 => String::new(),
            hz => format!(", {} a second", text::grouped(hz.into())),
        };
        let gil = match self.time.gil_held {
            Some(share) => format!("; GIL held in {}", text::percent(share)),
            None => String::new(),
        };
        format!("{samples} time samples{rate}{gil}")
    }

    fn allocations(&self) -> [String; 2] {
        let samples = text::grouped(self.samples);
        let periods = self.periods.iter();
        let periods: Vec<String> = periods.map(|&period| text::bytes(period as f64)).collect();
        let periods = periods.join(" or ");
        let way = match self.distances {
            Distances::Every => "all recorded".to_owned(),
            _ if self.method == Method::GcHooks.name() => {
                format!("at minor collections, about every {periods}")
            }
            Distances::Fixed => format!("exactly every {periods}"),
            Distances::Exponential => format!("one every {periods} on average"),
        };
        let allocated = if self.bytes_counted {
            text::bytes(self.bytes_allocated as f64)
        } else {
            self.show(&self.all.bytes, true)
        };
        let what = if self.distances == Distances::Every {
            "allocations"
        } else {
            "samples"
        };
        [
            format!("{allocated} allocated · {samples} {what}, {way}"),
            self.lifetimes(),
        ]
    }

    fn collected(&self) -> Option<String> {
        let number = text::grouped(self.collections.count);
        let took = text::duration(self.collections.duration_nanos);
        (self.collections.count > 0).then(|| format!("{number} collections took {took}"))
    }

    fn lifetimes(&self) -> String {
        let all = &self.all;
        let whole = all.bytes.estimate;
        let mut parts = Vec::new();
        for (lifetime, what) in [
            (&all.died_young, "died young"),
            (&all.freed, "died later"),
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
            let lost = text::grouped(self.lost);
            lines.push(format!(
                "! {lost} samples were lost: all figures are too low"
            ));
        }
        let lost_other = self.lost_other - self.time.lost;
        if lost_other > 0 {
            let lost = text::grouped(lost_other);
            lines.push(format!(
                "! {lost} other events were lost: lifetimes of objects may be wrong"
            ));
        }
        lines.extend(self.remarks());
        lines
    }

    /// Warnings and notes on the whole profile.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.complete {
            lines.push(self.incomplete());
        }
        for damage in &self.damage {
            let what = text::fit(&damage.what, 300, Cut::End);
            lines.push(format!("! damage at byte {}: {what}", damage.offset));
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

    /// An estimate of bytes, with both ends of its interval or with the larger distance to an end.
    fn show(&self, bytes: &Estimate, wide: bool) -> String {
        let shown = text::bytes(bytes.estimate);
        if self.distances == Distances::Every || (bytes.estimate == 0.0 && !wide) {
            shown
        } else if wide {
            let range = text::range(bytes.low, bytes.estimate, bytes.high);
            format!("{shown} ({range})")
        } else {
            format!("{shown} ±{}", bytes.relative_error())
        }
    }

    fn table(&self, text: &mut String, width: usize) {
        let wide = width >= WIDE;
        let mut headings = vec!["own bytes", "share", "total bytes", "allocs", "young"];
        match self.by {
            By::Type => {
                headings.remove(2);
            }
            By::Process => headings = vec!["bytes", "share", "allocs", "young", "peak RSS", "ran"],
            By::Function | By::Line | By::File => {}
        }
        let figures: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| self.figures(row, wide))
            .collect();
        self.lines(text, width, &headings, &figures, |row, columns| {
            let Row {
                name, file, line, ..
            } = &self.rows[row];
            self.label(name, file, *line, columns)
        });
    }

    fn time_table(&self, text: &mut String, width: usize) {
        let clock = self.time.clock();
        let figures = |row: &TimeRow| {
            vec![
                clock.show(&row.self_time, width >= WIDE),
                text::percent(row.share),
                clock.show(&row.total_time, width >= WIDE),
                text::grouped(row.samples),
            ]
        };
        let figures: Vec<_> = self.time.rows.iter().map(figures).collect();
        let headings = ["own time", "share", "total time", "samples"];
        self.lines(text, width, &headings, &figures, |row, columns| {
            let TimeRow {
                name, file, line, ..
            } = &self.time.rows[row];
            self.label(name, file, *line, columns)
        });
    }

    /// Writes a table: right-aligned figures, then the label. `label` gets the number of the row and
    /// the width that is left.
    fn lines(
        &self,
        text: &mut String,
        width: usize,
        headings: &[&str],
        figures: &[Vec<String>],
        label: impl Fn(usize, usize) -> String,
    ) {
        let headings: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
        let mut columns = vec![0; headings.len()];
        for row in std::iter::once(&headings).chain(figures) {
            for (column, figure) in columns.iter_mut().zip(row) {
                *column = text::width(figure).max(*column);
            }
        }
        let taken: usize = columns.iter().map(|column| column + GAP).sum();
        let rest = width.saturating_sub(taken).max(16);
        let heading = match self.by {
            By::Function => "function",
            By::Line => "line",
            By::File => "file",
            By::Type => "type",
            By::Process => "process",
        };
        line(text, &headings, &columns, heading);
        for (row, figures) in figures.iter().enumerate() {
            line(text, figures, &columns, &label(row, rest));
        }
    }

    fn figures(&self, row: &Row, wide: bool) -> Vec<String> {
        let own = &row.self_bytes;
        let young = if own.estimate > 0.0 {
            text::percent(row.died_young.estimate / own.estimate)
        } else {
            String::new()
        };
        let mut figures = vec![
            self.show(own, wide),
            text::percent(row.share),
            self.show(&row.total_bytes, wide),
            text::count(row.allocations.estimate),
            young,
        ];
        if matches!(self.by, By::Type | By::Process) {
            figures.remove(2);
        }
        if self.by == By::Process {
            figures.extend(self.of_process(&row.name));
        }
        figures
    }

    /// The largest resident set of a process, and when and how long it ran.
    fn of_process(&self, label: &str) -> [String; 2] {
        let process = self.processes.iter().find(|of| of.label() == label);
        let Some(process) = process else {
            return [String::new(), String::new()];
        };
        let rss = process.peak_rss.map(|rss| text::bytes(rss as f64));
        let took = text::duration(process.duration_nanos);
        let ran = match process.start_nanos {
            0 => took,
            start => format!("{took} from {}", text::duration(start)),
        };
        [rss.unwrap_or_default(), ran]
    }

    /// The label of a row: its name, and its place in the source if there is room.
    fn label(&self, name: &str, file: &str, line: u32, columns: usize) -> String {
        match self.by {
            By::Type | By::Process => return text::fit(name, columns, Cut::End),
            By::File => return text::fit(name, columns, Cut::Start),
            By::Function | By::Line => {}
        }
        let parts = if columns < 40 { 1 } else { 3 };
        let place = place(file, line, parts);
        let full = text::fit(name, columns, Cut::End);
        if place.is_empty() {
            return full;
        }
        let beside_place = columns.saturating_sub(text::width(&place) + 1);
        let name = text::fit(name, beside_place.max(columns / 2), Cut::End);
        let for_place = columns.saturating_sub(text::width(&name) + 1);
        if for_place < 6 {
            return full;
        }
        let place = text::fit(&place, for_place, Cut::Start);
        format!("{name} {place}")
    }
}

/// `file:line`, as far as they are known, with the last parts of the file's path.
pub(crate) fn place(file: &str, line: u32, parts: usize) -> String {
    let start = file
        .rmatch_indices('/')
        .nth(parts - 1)
        .map_or(0, |(at, _)| at + 1);
    let shown = &file[start..];
    let mut place = if start <= 1 || parts == 1 {
        shown.to_owned()
    } else {
        format!("…/{shown}")
    };
    if line > 0 && !file.is_empty() {
        let _ = write!(place, ":{line}");
    }
    place
}

fn line(text: &mut String, figures: &[String], columns: &[usize], label: &str) {
    for (figure, &column) in figures.iter().zip(columns) {
        let missing = column.saturating_sub(text::width(figure));
        text.extend(std::iter::repeat_n(' ', missing));
        text.push_str(figure);
        text.extend(std::iter::repeat_n(' ', GAP));
    }
    text.push_str(label);
    text.push('\n');
}

/// Adds a line. If it is too wide, it is wrapped between words and continues indented.
pub(crate) fn wrap(text: &mut String, line: &str, width: usize) {
    let mut column = 0;
    for word in line.split(' ') {
        let word = text::fit(word, width - GAP, Cut::End);
        let wide = text::width(&word);
        if column > 0 && column + 1 + wide > width {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += wide;
    }
    text.push('\n');
}
