//! The tables of a summary for a terminal.

use super::{By, Row, Sort, Summary, TimeRow};
use crate::columns::{self, Column, named_line, named_place};
use crate::estimate::Estimate;
use crate::text::{self, Cut};

/// Both ends of an interval are shown (not only `±5%`) if all columns have room beside a label of
/// this width.
const LABEL_BESIDE_RANGES: usize = 40;

const TOTAL: &str = "total bytes";

impl By {
    /// What a row is, in singular and plural.
    pub(super) const fn nouns(self) -> [&'static str; 2] {
        match self {
            Self::Function => ["function", "functions"],
            Self::Line => ["line", "lines"],
            Self::File => ["file", "files"],
            Self::Type => ["type", "types"],
            Self::Process => ["process", "processes"],
        }
    }
}

impl Summary {
    /// Writes the table of allocations, and returns the number of its rows: those that have no sample of their own are
    /// left out where the line has no room for their total bytes.
    pub(super) fn table(&self, text: &mut String, width: usize) -> usize {
        let mut columns = self.columns(true);
        if columns::left_for_label(&columns, width) < LABEL_BESIDE_RANGES {
            columns = self.columns(false);
        }
        let mut columns = columns::fitting(columns, width);
        let mut rows = self.rows.len();
        if self.has_totals() && !columns.iter().any(|column| column.heading == TOTAL) {
            rows = self.rows.iter().filter(|row| row.samples > 0).count();
            columns
                .iter_mut()
                .for_each(|column| column.cells.truncate(rows));
        }
        let [heading, _] = self.by.nouns();
        columns::table(text, width, columns, heading, |row, left| {
            let Row {
                name, file, line, ..
            } = &self.rows[row];
            self.label(name, file, *line, left)
        });
        rows
    }

    /// Whether rows call each other, so that their total bytes differ from their own.
    fn has_totals(&self) -> bool {
        !matches!(self.by, By::Type | By::Process)
    }

    /// The columns of the table. Those that are not always shown have a rank; see [`Column`].
    fn columns(&self, wide: bool) -> Vec<Column> {
        let bytes = |heading, rank, figure: &dyn Fn(&Row) -> Estimate| {
            let rows = self.rows.iter();
            let cells = rows.map(|row| self.show(&figure(row), wide)).collect();
            Column::new(heading, rank, cells)
        };
        let other = |heading, rank, figure: &dyn Fn(&Row) -> String| {
            Column::new(heading, rank, self.rows.iter().map(figure).collect())
        };
        let is_of_processes = self.by == By::Process;
        let own = if is_of_processes {
            "bytes"
        } else {
            "own bytes"
        };
        let mut columns = vec![
            bytes(own, None, &|row| row.self_bytes),
            other("share", Some(1), &|row| text::percent(row.share)),
        ];
        if self.has_totals() {
            columns.push(bytes(TOTAL, Some(2), &|row| row.total_bytes));
        }
        let mut survived = None;
        if self.knows_what_is_alive() {
            columns.push(bytes("alive", None, &|row| row.alive.unwrap_or_default()));
            survived = Some(if is_of_processes { 6 } else { 3 });
        }
        if is_of_processes {
            let process = |row: &Row| self.of_process(row);
            columns.push(other("peak RSS", Some(3), &|row| process(row).0));
            columns.push(other("ran", Some(2), &|row| process(row).1));
        }
        if self.has_collector() {
            columns.push(bytes("survived", survived, &|row| row.survivors));
        }
        columns.push(other("allocs", Some(4), &|row| {
            text::count(row.allocations.estimate)
        }));
        if self.has_collector() {
            columns.push(other("young", Some(5), &|row| {
                if row.self_bytes.estimate == 0.0 {
                    return String::new();
                }
                text::percent(row.died_young.estimate / row.self_bytes.estimate)
            }));
        }
        // The column that says why a row stands where it does is always shown.
        let sorted_by = match self.sorted_by {
            Sort::Own | Sort::Alive => None,
            Sort::Total => Some(TOTAL),
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
    fn of_process(&self, row: &Row) -> (String, String) {
        let Some(process) = self.processes.get(row.process) else {
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

    /// Writes the table of time samples.
    pub(super) fn time_table(&self, text: &mut String, width: usize) {
        let mut columns = self.time_columns(true);
        if columns::left_for_label(&columns, width) < LABEL_BESIDE_RANGES {
            columns = self.time_columns(false);
        }
        let [heading, _] = self.by.nouns();
        columns::table(text, width, columns, heading, |row, left| {
            let TimeRow {
                name, file, line, ..
            } = &self.time.rows[row];
            self.label(name, file, *line, left)
        });
    }

    fn time_columns(&self, wide: bool) -> Vec<Column> {
        let clock = self.time.clock();
        let column = |heading, rank, figure: &dyn Fn(&TimeRow) -> String| {
            Column::new(heading, rank, self.time.rows.iter().map(figure).collect())
        };
        vec![
            column("own time", None, &|row| clock.show(&row.self_time, wide)),
            column("share", Some(1), &|row| text::percent(row.share)),
            column("total time", Some(2), &|row| {
                clock.show(&row.total_time, wide)
            }),
            column("samples", Some(3), &|row| text::grouped(row.samples)),
        ]
    }

    /// The label of a row: its name, and its place in the source if there is room.
    fn label(&self, name: &str, file: &str, line: u32, left: usize) -> String {
        match self.by {
            By::Type | By::Process => text::fit(name, left, Cut::Middle),
            By::File => columns::path(name, "", left),
            By::Function => named_place(name, file, line, "", left),
            By::Line => named_line(name, file, line, left),
        }
    }
}
