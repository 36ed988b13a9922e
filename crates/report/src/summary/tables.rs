//! The tables of a summary for a terminal.

use super::render::Summarized;
use super::{By, RowBytes, RowTime, Sort, Summary, SummaryRow};
use crate::columns::{self, Column, Label, Named};
use crate::estimate::Estimate;
use crate::text;

/// Both ends of an interval are shown (not only `±5%`) if all columns have room beside a label of
/// this width.
const LABEL_BESIDE_RANGES: usize = 40;

const TOTAL_BYTES: &str = "total bytes";
const TOTAL_TIME: &str = "total time";

impl By {
    /// What a row is, in singular and plural.
    pub(super) const fn nouns(self) -> [&'static str; 2] {
        match self {
            Self::Function => ["function", "functions"],
            Self::Line => ["line", "lines"],
            Self::File => ["file", "files"],
            Self::Type => ["type", "types"],
            Self::Process => ["process", "processes"],
            Self::Label(_) => ["value", "values"],
        }
    }
}

impl Summary {
    /// Writes the table, and returns the number of its rows: those that have no sample of their own are left out where
    /// the line has no room for the figures of what they called.
    pub(super) fn table<Q: Summarized>(&self, text: &mut String, width: usize) -> usize {
        let mut columns = Q::columns(self, true);
        if columns::left_for_label(&columns, width) < LABEL_BESIDE_RANGES {
            columns = Q::columns(self, false);
        }
        let mut columns = columns::fitting(columns, width);
        let all = Q::rows(self);
        let mut rows = all.len();
        let is_total = |column: &Column| [TOTAL_BYTES, TOTAL_TIME].contains(&column.heading);
        if self.has_totals() && !columns.iter().any(is_total) {
            rows = all.iter().filter(|row| row.samples > 0).count();
            columns
                .iter_mut()
                .for_each(|column| column.cells.truncate(rows));
        }
        let heading = match self.by {
            By::Label(key) => key.as_str(),
            by => by.nouns()[0],
        };
        columns::table(text, width, columns, heading, |row| self.label(&all[row]));
        rows
    }

    /// Whether rows call each other, so that their total bytes differ from their own.
    fn has_totals(&self) -> bool {
        self.by.is_of_code()
    }

    /// The columns of the table. Those that are not always shown have a rank; see [`Column`].
    pub(super) fn columns_of_bytes(&self, wide: bool) -> Vec<Column> {
        let bytes = |heading, rank, figure: &dyn Fn(&SummaryRow<RowBytes>) -> Estimate| {
            let rows = self.rows.iter();
            let cells = rows.map(|row| self.show(&figure(row), wide)).collect();
            Column::new(heading, rank, cells)
        };
        let other = |heading, rank, figure: &dyn Fn(&SummaryRow<RowBytes>) -> String| {
            Column::new(heading, rank, self.rows.iter().map(figure).collect())
        };
        let is_of_processes = self.by == By::Process;
        let are_whole = matches!(self.by, By::Process | By::Label(_));
        let own = if are_whole { "bytes" } else { "own bytes" };
        let mut columns = vec![
            bytes(own, None, &|row| row.figures.self_bytes),
            other("share", Some(1), &|row| text::percent(row.figures.share)),
        ];
        if self.has_totals() {
            columns.push(bytes(TOTAL_BYTES, Some(2), &|row| row.figures.total_bytes));
        }
        let mut survived = None;
        if self.knows_what_is_alive() {
            columns.push(bytes("alive", None, &|row| {
                row.figures.alive.unwrap_or_default()
            }));
            survived = Some(if is_of_processes { 6 } else { 3 });
        }
        if is_of_processes {
            let process = |row: &SummaryRow<RowBytes>| self.of_process(row);
            columns.push(other("peak RSS", Some(3), &|row| process(row).0));
            columns.push(other("ran", Some(2), &|row| process(row).1));
        }
        if self.has_collector() {
            columns.push(bytes("survived", survived, &|row| row.figures.survivors));
        }
        columns.push(other("allocs", Some(4), &|row| {
            text::count(row.figures.allocations.estimate)
        }));
        if self.has_collector() {
            columns.push(other("young", Some(5), &|row| {
                if row.figures.self_bytes.estimate == 0.0 {
                    return String::new();
                }
                text::percent(row.figures.died_young.estimate / row.figures.self_bytes.estimate)
            }));
        }
        // The column that says why a row stands where it does is always shown.
        let sorted_by = match self.sorted_by {
            Sort::Own | Sort::Alive => None,
            Sort::Total => Some(TOTAL_BYTES),
            Sort::Young => Some("young"),
            Sort::Allocs => Some("allocs"),
        };
        for column in &mut columns {
            if Some(column.heading) == sorted_by {
                column.rank = None;
            }
        }
        columns
    }

    /// The largest resident set of a process, and when and how long it ran.
    fn of_process(&self, row: &SummaryRow<RowBytes>) -> (String, String) {
        let Some(process) = self.processes.get(row.figures.process) else {
            return Default::default();
        };
        let rss = process.peak_rss.map(|rss| text::bytes(rss as f64));
        let took = text::duration(process.duration_nanos);
        let ran = match process.start_nanos {
            0 => took,
            start => format!("{took} from {}", text::duration(start)),
        };
        (rss.unwrap_or_default(), ran)
    }

    /// The same of time samples.
    pub(super) fn columns_of_time(&self, wide: bool) -> Vec<Column> {
        let clock = self.time.clock();
        let column = |heading, rank, figure: &dyn Fn(&SummaryRow<RowTime>) -> String| {
            Column::new(heading, rank, self.time.rows.iter().map(figure).collect())
        };
        vec![
            column("own time", None, &|row| {
                clock.show(&row.figures.self_time, wide)
            }),
            column("share", Some(1), &|row| text::percent(row.figures.share)),
            column(TOTAL_TIME, Some(2), &|row| {
                clock.show(&row.figures.total_time, wide)
            }),
            column("samples", Some(3), &|row| text::grouped(row.samples)),
        ]
    }

    fn label<'a, F>(&self, row: &'a SummaryRow<F>) -> Label<'a> {
        let (name, file, line) = row.label();
        let place = Named {
            name,
            file,
            line,
            more: "".into(),
        };
        match self.by {
            By::Type | By::Process | By::Label(_) => Label::Name(name.into()),
            By::File => Label::File(name),
            By::Function => Label::Function(place),
            By::Line => Label::Line(place),
        }
    }
}
