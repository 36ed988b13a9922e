//! The layout of a table: columns of figures, and a label in what is left of the line.
//!
//! A line that is too narrow for all columns loses the least important ones. The label is a name and
//! its place in the source. Of these two, the place is cut first, in the middle of its path.

use std::fmt::Write;

use crate::selection::module_path;
use crate::text::{self, Cut, GAP};

/// The fewest columns of a label beside which a column is shown that can be left out.
const LABEL: usize = 26;

/// The fewest columns of a path that are worth to be shown.
const PLACE: usize = 8;

/// The fewest columns that a name keeps beside a place.
const NAME: usize = 8;

/// A column of figures.
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// `None`: it is always shown. Else the column with the largest number is left out first.
    pub(crate) rank: Option<u8>,
    pub(crate) cells: Vec<String>,
}

impl Column {
    pub(crate) fn new(heading: &'static str, rank: Option<u8>, cells: Vec<String>) -> Self {
        Self {
            heading,
            rank,
            cells,
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| text::width(cell));
        cells.chain([text::width(self.heading)]).max().unwrap_or(0)
    }
}

/// The columns of a line that columns of figures leave for the label.
pub(crate) fn left_for_label(columns: &[Column], width: usize) -> usize {
    let taken: usize = columns.iter().map(|column| column.width() + GAP).sum();
    width.saturating_sub(taken)
}

/// Leaves out the least important columns until a label has room in a line.
pub(crate) fn fitting(mut columns: Vec<Column>, width: usize) -> Vec<Column> {
    while left_for_label(&columns, width) < LABEL {
        let ranks = columns
            .iter()
            .enumerate()
            .filter(|(_, of)| of.rank.is_some());
        let Some((least, _)) = ranks.max_by_key(|(_, of)| of.rank) else {
            break;
        };
        columns.remove(least);
    }
    columns
}

/// Writes a table: figures at the right of their columns, then what `label` gives for the number of a
/// row and the columns that are left for it.
pub(crate) fn table(
    text: &mut String,
    width: usize,
    columns: Vec<Column>,
    heading: &str,
    label: impl Fn(usize, usize) -> String,
) {
    let columns = fitting(columns, width);
    let left = left_for_label(&columns, width).max(12);
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let mut line = |cell: &dyn Fn(&Column) -> String, label: &str| {
        for (column, &width) in columns.iter().zip(&widths) {
            let cell = cell(column);
            let missing = width.saturating_sub(text::width(&cell));
            text.extend(std::iter::repeat_n(' ', missing));
            text.push_str(&cell);
            text.extend(std::iter::repeat_n(' ', GAP));
        }
        text.push_str(label);
        text.push('\n');
    };
    line(&|column| column.heading.to_owned(), heading);
    let rows = columns.iter().map(|column| column.cells.len()).max();
    for row in 0..rows.unwrap_or(0) {
        line(&|column| column.cells[row].clone(), &label(row, left));
    }
}

/// A name, and its place in the source if there is room for it. `more` is written after the place.
pub(crate) fn named_place(name: &str, file: &str, line: u32, more: &str, columns: usize) -> String {
    let name = text::fit(name, columns, Cut::Middle);
    let left = columns.saturating_sub(text::width(&name) + 1);
    if file.is_empty() || left < PLACE {
        return name;
    }
    format!("{name} {}", path(file, &after(line, more), left))
}

/// The place of a line, and the name of its function before it. The name gives way: lines of one function differ by their places.
pub(crate) fn named_line(name: &str, file: &str, line: u32, columns: usize) -> String {
    let last = file.rsplit('/').next().unwrap_or(file);
    let least = text::width(&text::clean(&format!("{last}{}", after(line, "")))) + 1;
    let left = columns.saturating_sub(least).max(NAME);
    let room = if file.is_empty() { columns } else { left };
    let name = text::fit(name, room.min(columns), Cut::Middle);
    named_place(&name, file, line, "", columns)
}

/// What follows the path of a file.
fn after(line: u32, more: &str) -> String {
    let mut text = String::new();
    if line > 0 {
        let _ = write!(text, ":{line}");
    }
    text.push_str(more);
    text
}

/// The path of a source file, with what follows it, in at most so many columns: from where modules
/// are imported, and without its middle folders if it is too long.
pub(crate) fn path(file: &str, after: &str, columns: usize) -> String {
    let path = module_path(file);
    let whole = text::clean(&format!("{path}{after}"));
    if text::width(&whole) <= columns {
        return whole;
    }
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let name = text::clean(&format!("{name}{after}"));
    // An ellipsis and a slash.
    let left = columns.saturating_sub(text::width(&name) + 2);
    if folders.is_empty() || left == 0 {
        return text::fit(&name, columns, Cut::Start);
    }
    // Whole folders at the start, if there are some that fit.
    let mut kept = "";
    for (at, _) in folders.match_indices('/').filter(|(at, _)| *at > 0) {
        if text::width(&text::clean(&folders[..=at])) > left {
            break;
        }
        kept = &folders[..=at];
    }
    format!("{}…/{name}", text::clean(kept))
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

/// Adds a line. If it is too wide, it is wrapped between words and continues indented. A number stays with its unit. A path
/// that is wider than a line keeps its last part, and the number of a line behind it.
pub(crate) fn wrap(text: &mut String, line: &str, width: usize) {
    let mut column = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let (word, after) = first_word(rest);
        rest = after;
        let cut = if word.contains('/') {
            Cut::Middle
        } else {
            Cut::End
        };
        let word = text::fit(word, width - GAP, cut);
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

/// The first word, with the unit that follows a number; and what is after the space behind it.
fn first_word(line: &str) -> (&str, &str) {
    const UNITS: [&str; 9] = ["%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "s", "min"];
    let split = |line: &str| line.find(' ').unwrap_or(line.len());
    let mut end = split(line);
    if line[..end].ends_with(|last: char| last.is_ascii_digit()) && end < line.len() {
        let next = &line[end + 1..];
        let unit = &next[..split(next)];
        if UNITS.contains(&unit.trim_end_matches([',', ';', ':', '.', ')'])) {
            end += 1 + unit.len();
        }
    }
    (&line[..end], line.get(end + 1..).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_path_keeps_its_end() {
        let mut text = String::new();
        wrap(
            &mut text,
            "in a_long_folder/and_another/app.py:12, twice",
            24,
        );
        assert_eq!(text, "in\n  a_long_fol…/app.py:12,\n  twice\n");
        text.clear();
        wrap(&mut text, &format!("{} b", "a".repeat(30)), 14);
        assert_eq!(text, "aaaaaaaaaaa… b\n");
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let mut text = String::new();
        wrap(&mut text, "it is 12.5 MiB, or 3 % of 7 things", 14);
        assert_eq!(text, "it is\n  12.5 MiB, or\n  3 % of 7\n  things\n");
    }

    const FILE: &str = "/home/me/code/shop/orders/models/invoice.py";

    #[test]
    fn the_path_is_cut_before_the_name() {
        let at = |columns| named_place("Invoice.total", FILE, 12, "", columns);
        assert_eq!(at(80), format!("Invoice.total {FILE}:12"));
        assert_eq!(at(44), "Invoice.total /home/me/code/…/invoice.py:12");
        assert_eq!(at(31), "Invoice.total …/invoice.py:12");
        assert_eq!(at(24), "Invoice.total …ice.py:12");
        assert_eq!(at(15), "Invoice.total");
        assert_eq!(at(9), "Invo…otal");
        let library = "/v/lib/python3.11/site-packages/docutils/nodes.py";
        assert_eq!(path(library, ":7", 60), "docutils/nodes.py:7");
    }

    #[test]
    fn a_line_keeps_its_place() {
        let at = |columns| named_line("Invoice.total", FILE, 12, columns);
        assert_eq!(at(31), "Invoice.total …/invoice.py:12");
        assert_eq!(at(24), "Invo…total invoice.py:12");
        assert_eq!(at(20), "Inv…otal …oice.py:12");
        assert_eq!(at(15), "Inv…otal");
    }

    #[test]
    fn a_narrow_table_leaves_the_least_important_column_out() {
        let column = |heading, rank| {
            Column::new(heading, rank, vec!["1234567890".to_owned(), "1".to_owned()])
        };
        let shown = |width| {
            let mut text = String::new();
            let columns = vec![
                column("a", None),
                column("b", Some(1)),
                column("c", Some(2)),
            ];
            table(&mut text, width, columns, "name", |_, left| {
                "x".repeat(left)
            });
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
            text.lines()
                .next()
                .expect("headings")
                .split_whitespace()
                .collect::<String>()
        };
        assert_eq!(shown(62), "abcname");
        assert_eq!(shown(61), "abname");
        assert_eq!(shown(49), "aname");
        assert_eq!(shown(30), "aname");
    }

    proptest! {
        #[test]
        fn labels_fit(name in "[a-z.日]{0,30}", file in "(/?[a-z日]{0,9}){0,6}", line in 0_u32..2000, columns in 1_usize..60) {
            prop_assert!(text::width(&named_place(&name, &file, line, "", columns)) <= columns);
            prop_assert!(text::width(&named_line(&name, &file, line, columns)) <= columns);
            prop_assert!(text::width(&path(&file, ":1", columns)) <= columns);
        }
    }
}
