//! The layout of a table: columns of figures, and a label in the rest of the line.
//!
//! A line that is too narrow for all columns loses the least important ones. The label is a name and its place in the
//! source. First the place loses its folders, then the name gives way; the file and the line stay. No two rows look the same.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

use crate::selection::module_path;
use crate::text::{self, Cut, GAP};

/// The fewest columns of a label beside which a column is shown that can be left out.
const LABEL: usize = 26;

/// The fewest columns of a name beside a place, and of a place beside a name.
const PART: usize = 6;

/// A column of figures.
pub struct Column {
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

/// Writes a table: figures at the right of their columns, then the label of each row.
pub(crate) fn table<'a>(
    text: &mut String,
    width: usize,
    columns: Vec<Column>,
    heading: &str,
    label: impl Fn(usize) -> Label<'a>,
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
    let labels: Vec<Label<'_>> = (0..rows.unwrap_or(0)).map(label).collect();
    for (row, label) in distinct(&labels, left).iter().enumerate() {
        line(&|column| column.cells[row].clone(), label);
    }
}

/// What a row is about.
#[derive(Clone, Debug)]
pub(crate) enum Label<'a> {
    /// A type, or a process.
    Name(Cow<'a, str>),
    /// A file.
    File(&'a str),
    /// A function.
    Function(Named<'a>),
    /// A line of a function, which is told by its place.
    Line(Named<'a>),
}

/// A function with the place where it is. `more` is written after that.
#[derive(Clone, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) more: Cow<'a, str>,
}

impl Label<'_> {
    /// In at most so many columns.
    fn fit(&self, columns: usize) -> String {
        match self {
            Self::Name(name) => text::fit(name, columns, Cut::Middle),
            Self::File(file) => path(file, "", columns),
            Self::Function(place) => place.fit(columns),
            Self::Line(place) => {
                if columns < place.least() + PART && !place.file.is_empty() {
                    return path(place.file, &place.after(), columns);
                }
                place.fit(columns)
            }
        }
    }

    /// Without anything left out.
    fn whole(&self) -> String {
        text::clean(&match self {
            Self::Name(name) => name.to_string(),
            Self::File(name) => (*name).to_owned(),
            Self::Function(place) | Self::Line(place) => {
                format!("{} {}{}", place.name, place.file, place.after())
            }
        })
    }
}

impl Named<'_> {
    fn after(&self) -> String {
        after(self.line, &self.more)
    }

    /// The columns that the file's name and the line take, with a space before them.
    fn least(&self) -> usize {
        let last = self.file.rsplit('/').next().unwrap_or(self.file);
        text::width(&text::clean(&format!("{last}{}", self.after()))) + 1
    }

    /// In at most so many columns.
    pub(crate) fn fit(&self, columns: usize) -> String {
        if self.file.is_empty() || columns <= 2 * PART {
            return text::fit(self.name, columns, Cut::Middle);
        }
        let room = columns.saturating_sub(self.least()).max(PART);
        let name = text::fit(self.name, room, Cut::Middle);
        let left = columns.saturating_sub(text::width(&name) + 1);
        format!("{name} {}", path(self.file, &self.after(), left))
    }
}

/// The labels in at most so many columns, each unlike the others. `columns`: 12 or more.
fn distinct(labels: &[Label<'_>], columns: usize) -> Vec<String> {
    let mut shown: Vec<String> = labels.iter().map(|label| label.fit(columns)).collect();
    let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
    for (row, text) in shown.iter().enumerate() {
        alike.entry(text.clone()).or_default().push(row);
    }
    let mut groups: Vec<Vec<usize>> = alike.into_values().filter(|of| of.len() > 1).collect();
    groups.sort_unstable();
    for rows in groups {
        let wholes: Vec<String> = rows.iter().map(|&row| labels[row].whole()).collect();
        if wholes.iter().all(|whole| *whole == wholes[0]) {
            continue;
        }
        for (&row, text) in rows.iter().zip(around_difference(&wholes, columns)) {
            shown[row] = text;
        }
    }
    // Names that are still alike are numbered.
    let mut seen: HashMap<String, usize> = HashMap::new();
    for text in &mut shown {
        let mut number = 1;
        let mut candidate = text.clone();
        while seen.contains_key(&candidate) {
            number = seen
                .get(text.as_str())
                .map_or(number, |&last| last.max(number))
                + 1;
            let mark = format!(" #{number}");
            candidate = text::fit(text, columns.saturating_sub(mark.len()), Cut::End) + &mark;
        }
        if number > 1 {
            seen.insert(text.clone(), number);
        }
        seen.insert(candidate.clone(), 1);
        *text = candidate;
    }
    shown
}

/// The part of each text that begins shortly before the first character that is not the same in all.
fn around_difference(texts: &[String], columns: usize) -> Vec<String> {
    let first: Vec<char> = texts[0].chars().collect();
    let common = |text: &String| {
        let same = text.chars().zip(&first);
        same.take_while(|(one, other)| one == *other).count()
    };
    let same = texts.iter().map(common).min().unwrap_or(0);
    let start = same.saturating_sub(columns / 3);
    let cut = |text: &String| match start {
        0 => text::fit(text, columns, Cut::End),
        start => {
            let rest: String = text.chars().skip(start).collect();
            format!("…{}", text::fit(&rest, columns - 1, Cut::End))
        }
    };
    texts.iter().map(cut).collect()
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

/// The first word, with the unit that follows a number; and the text after the space behind it.
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

    fn place(name: &'static str, file: &'static str, line: u32) -> Named<'static> {
        let more = Cow::Borrowed("");
        Named {
            name,
            file,
            line,
            more,
        }
    }

    #[test]
    fn the_name_gives_way_to_the_file_and_the_line() {
        let at = |columns| place("Invoice.total", FILE, 12).fit(columns);
        assert_eq!(at(80), format!("Invoice.total {FILE}:12"));
        assert_eq!(at(44), "Invoice.total /home/me/code/…/invoice.py:12");
        assert_eq!(at(31), "Invoice.total …/invoice.py:12");
        assert_eq!(at(24), "Invo…total invoice.py:12");
        assert_eq!(at(18), "In…tal …oice.py:12");
        assert_eq!(at(13), "In…tal …py:12");
        assert_eq!(at(9), "Invo…otal");
        let library = "/v/lib/python3.11/site-packages/docutils/nodes.py";
        assert_eq!(path(library, ":7", 60), "docutils/nodes.py:7");
        let at = |columns| Label::Line(place("Invoice.total", FILE, 12)).fit(columns);
        assert_eq!(at(20), "In…tal invoice.py:12");
        assert_eq!(at(19), "…/invoice.py:12");
        assert_eq!(at(9), "…ce.py:12");
    }

    #[test]
    fn rows_that_would_look_the_same_show_where_they_differ() {
        let of = |name| Label::Function(place(name, "", 0));
        let long = [
            of("a_very_long_name_that_begins_alike_first_and_so_on"),
            of("a_very_long_name_that_begins_alike_other_and_so_on"),
            of("short"),
        ];
        let shown = distinct(&long, 16);
        assert_eq!(shown, ["…like_first_and…", "…like_other_and…", "short"]);
        let same = [of("worker"), of("worker"), of("worker")];
        assert_eq!(distinct(&same, 16), ["worker", "worker #2", "worker #3"]);
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
            table(&mut text, width, columns, "name", |_| {
                Label::Name("a name that is as long as a name can be".into())
            });
            assert!(
                text.lines().all(|line| text::width(line) <= width),
                "{text}"
            );
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

    fn label(by: usize, (name, file, line): &(String, String, u32)) -> Label<'_> {
        let place = Named {
            name,
            file,
            line: *line,
            more: Cow::Borrowed(""),
        };
        match by {
            0 => Label::Name(name.into()),
            1 => Label::File(file),
            2 => Label::Function(place),
            _ => Label::Line(place),
        }
    }

    proptest! {
        #[test]
        fn labels_fit_and_no_two_are_alike(
            places in proptest::collection::vec(("[ab日]{0,30}", "(/?[ab]{0,9}){0,4}", 0_u32..3), 1..9),
            columns in 12_usize..60,
        ) {
            for by in 0..4 {
                let labels: Vec<Label<'_>> = places.iter().map(|place| label(by, place)).collect();
                let mut shown = distinct(&labels, columns);
                prop_assert!(shown.iter().all(|label| text::width(label) <= columns), "{:?}", shown);
                shown.sort();
                shown.dedup();
                prop_assert_eq!(shown.len(), places.len());
            }
        }
    }
}
