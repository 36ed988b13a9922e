//! The table of a run of tests, for a terminal.

use std::borrow::Cow;

use super::{Changes, Suite, TestRow};
use crate::columns::{Column, Label, place, table, wrap};
use crate::estimate::Estimate;
use crate::text::{self, NARROWEST};

impl Suite {
    /// The tables as text with lines of at most `width` columns (but at least 60). `most`: rows in each; 0 for all.
    #[must_use]
    pub fn render(&self, width: usize, most: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        let tests = self.rows.iter().filter(|row| row.owner.scope.is_none());
        let tests = text::counted(tests.count() as u64, "test");
        let allocated = show(&self.allocated, self.is_exact());
        let outside = show(&self.outside, self.is_exact());
        let line = format!("{tests} · {allocated} allocated, {outside} of it outside of tests");
        wrap(&mut text, &line, width);
        self.part(
            &mut text,
            width,
            most,
            "Most at one time, over what was alive before",
            |row| row.peak,
        );
        self.part(&mut text, width, most, "Allocated", |row| {
            Some(row.allocated)
        });
        self.part(&mut text, width, most, "Left alive at the end", |row| {
            row.left
        });
        let has_samples = self.rows.iter().any(|row| row.samples > 0);
        if let Some(changes) = &self.changes {
            changes.render(&mut text, width);
        }
        if has_samples && self.rows.iter().all(|row| row.peak.is_none()) {
            text.push('\n');
            let line =
                "PyPy does not say when objects are freed: peaks, and what is left, are not known.";
            wrap(&mut text, line, width);
        }
        text
    }

    /// Whether every row is exact.
    fn is_exact(&self) -> bool {
        self.rows.iter().all(|row| row.exact)
    }

    /// One table: the rows with the largest of these figures.
    fn part(
        &self,
        text: &mut String,
        width: usize,
        most: usize,
        title: &str,
        figure: impl Fn(&TestRow) -> Option<Estimate>,
    ) {
        let of = |row: &TestRow| figure(row).map_or(0.0, |figure| figure.estimate);
        let mut rows: Vec<&TestRow> = self.rows.iter().filter(|row| of(row) > 0.0).collect();
        // The sort is stable: rows with the same figure stay in the order of the run.
        rows.sort_by(|one, other| of(other).total_cmp(&of(one)));
        let left_out = if most == 0 {
            0
        } else {
            rows.len().saturating_sub(most)
        };
        rows.truncate(rows.len() - left_out);
        if rows.is_empty() {
            return;
        }
        text.push('\n');
        wrap(text, title, width);
        let is_of_left = rows.iter().any(|row| row.left_by.is_some()) && title.starts_with("Left");
        let cells =
            |figure: &dyn Fn(&TestRow) -> String| rows.iter().map(|row| figure(row)).collect();
        let mut columns = vec![Column::new(
            "bytes",
            None,
            cells(&|row| figure(row).map_or_else(String::new, |of| show(&of, row.exact))),
        )];
        if is_of_left {
            let by = |row: &TestRow| {
                let by = row.left_by.as_ref();
                by.map_or_else(String::new, |by| text::clean(&place(&by.file, by.line, 1)))
            };
            columns.push(Column::new("allocated by", Some(1), cells(&by)));
        } else {
            let time = |row: &TestRow| text::duration(row.duration_nanos);
            columns.push(Column::new("time", Some(1), cells(&time)));
        }
        table(text, width, columns, "test", |row| {
            Label::Name(name(rows[row]))
        });
        for row in rows.iter().filter(|_| is_of_left) {
            if let Some(held_by) = &row.held_by {
                let line = format!("{}: {}", name(row), held_by.line());
                wrap(text, &text::clean(&line), width);
            }
        }
        if left_out > 0 {
            wrap(
                text,
                &format!("… and {} more", text::grouped(left_out as u64)),
                width,
            );
        }
    }
}

/// A test's id; a fixture with its scope.
fn name(row: &TestRow) -> Cow<'_, str> {
    match &row.owner.scope {
        None => Cow::Borrowed(&row.owner.name),
        Some(scope) => Cow::Owned(format!("fixture {} ({scope})", row.owner.name)),
    }
}

fn show(bytes: &Estimate, exact: bool) -> String {
    if exact || bytes.estimate == 0.0 {
        text::bytes(bytes.estimate)
    } else {
        bytes.with_error()
    }
}

impl Changes {
    fn render(&self, text: &mut String, width: usize) {
        text.push('\n');
        let compared = text::counted(self.compared as u64, "test");
        let new = match self.new {
            0 => String::new(),
            new => format!("; {} not in it", text::grouped(new as u64)),
        };
        if self.grown.is_empty() {
            wrap(
                text,
                &format!("Nothing has grown since the baseline: {compared}{new}"),
                width,
            );
            return;
        }
        wrap(
            text,
            &format!("Grown since the baseline: {compared} compared{new}"),
            width,
        );
        let cells =
            |cell: &dyn Fn(&super::TestGrowth) -> String| self.grown.iter().map(cell).collect();
        let range = |of: &Estimate| show(of, of.low >= of.high);
        let columns = vec![
            Column::new("was", None, cells(&|of| range(&of.old))),
            Column::new("is", None, cells(&|of| range(&of.new))),
        ];
        table(text, width, columns, "test", |row| {
            let growth = &self.grown[row];
            Label::Name(Cow::Owned(format!("{}: {}", growth.figure, growth.name)))
        });
    }
}
