//! Line numbers from CPython's location tables (`co_linetable`, 3.11 and later).
//!
//! A table is a sequence of entries, each for a run of code units of two bytes. The first byte of
//! an entry, the only one with its top bit set, contains a code (4 bits) and the run's length minus
//! one (3 bits). The next bytes depend on the code. Lines are relative to the previous entry, and
//! the first line is relative to the line of the definition. CPython documents the format in
//! `Objects/locations.md` (`InternalDocs/code_objects.md` since 3.14).

/// Bytes of a code unit.
const UNIT: u32 = 2;

/// The line of each part of a code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    /// For each part, the byte offset of its end and its line (0 if none); ends ascend.
    stretches: Vec<(u32, u32)>,
}

impl LineTable {
    /// Decodes a table. If an entry cannot be decoded, it and all later ones have no line.
    #[must_use]
    pub fn decode(table: &[u8], first_line: u32) -> Self {
        let mut stretches: Vec<(u32, u32)> = Vec::new();
        let mut line = i64::from(first_line);
        let mut end = 0_u32;
        let mut rest = table;
        while let Some(entry) = entry(&mut rest) {
            end = end.saturating_add(u32::from(entry.units) * UNIT);
            line = line.wrapping_add(entry.line_delta);
            let shown = if entry.has_line {
                u32::try_from(line).unwrap_or(0)
            } else {
                0
            };
            match stretches.last_mut() {
                Some(last) if last.1 == shown => last.0 = end,
                _ => stretches.push((end, shown)),
            }
        }
        stretches.shrink_to_fit();
        Self { stretches }
    }

    /// The line of the instruction at a byte offset; 0 if it has none.
    #[must_use]
    pub fn line(&self, offset: u32) -> u32 {
        let at = self.stretches.partition_point(|&(end, _)| end <= offset);
        self.stretches.get(at).map_or(0, |&(_, line)| line)
    }
}

/// The same result as [`LineTable::line`], without decoding the whole table.
pub(crate) fn line_at(mut table: &[u8], first_line: u32, offset: u32) -> u32 {
    let mut line = i64::from(first_line);
    let mut end = 0_u32;
    while let Some(entry) = entry(&mut table) {
        end = end.saturating_add(u32::from(entry.units) * UNIT);
        line = line.wrapping_add(entry.line_delta);
        if offset < end {
            let line = if entry.has_line { line } else { 0 };
            return u32::try_from(line).unwrap_or(0);
        }
    }
    0
}

/// The same table without columns, and with as few entries as possible: about a fifth of the
/// length.
pub(crate) fn without_columns(table: &[u8]) -> Vec<u8> {
    let mut short = Vec::new();
    let mut rest = table;
    // The current run: units, change of line, whether it has a line at all.
    let mut run = (0_u32, 0, false);
    while let Some(entry) = entry(&mut rest) {
        let units = u32::from(entry.units);
        if run.0 > 0 && entry.has_line == run.2 && entry.line_delta == 0 {
            run.0 = run.0.saturating_add(units);
        } else {
            put_run(&mut short, run);
            run = (units, entry.line_delta, entry.has_line);
        }
    }
    put_run(&mut short, run);
    short
}

/// Appends entries for a run of any length that has one line.
fn put_run(table: &mut Vec<u8>, (mut units, line_delta, has_line): (u32, i64, bool)) {
    let code = if has_line { NO_COLUMNS } else { NO_LINE };
    let mut delta = line_delta;
    while units > 0 {
        let some = units.min(8);
        table.push(0x80 | code << 3 | (some - 1) as u8);
        if has_line {
            put_signed(table, delta);
            delta = 0;
        }
        units -= some;
    }
}

/// The inverse of [`signed`].
fn put_signed(table: &mut Vec<u8>, value: i64) {
    let mut rest = value.unsigned_abs() << 1 | u64::from(value < 0);
    while rest >= 64 {
        table.push(64 | rest as u8 & 63);
        rest >>= 6;
    }
    table.push(rest as u8);
}

/// The code of an entry with a line and no columns.
const NO_COLUMNS: u8 = 13;

/// The code of an entry without a line.
const NO_LINE: u8 = 15;

struct Entry {
    units: u8,
    line_delta: i64,
    has_line: bool,
}

/// Removes the first entry; `None` at the end or if the table is not valid.
fn entry(table: &mut &[u8]) -> Option<Entry> {
    let first = byte(table)?;
    if first & 0x80 == 0 {
        return None;
    }
    let (line_delta, has_line) = match first >> 3 & 15 {
        // Short forms: the same line, columns in one byte.
        0..=9 => {
            byte(table)?;
            (0, true)
        }
        // One line: the delta is in the code, columns in two bytes.
        code @ 10..=12 => {
            byte(table)?;
            byte(table)?;
            (i64::from(code) - 10, true)
        }
        NO_COLUMNS => (signed(table)?, true),
        // Long form: line, end line, column, end column.
        14 => {
            let delta = signed(table)?;
            for _ in 0..3 {
                varint(table)?;
            }
            (delta, true)
        }
        NO_LINE.. => (0, false),
    };
    Some(Entry {
        units: (first & 7) + 1,
        line_delta,
        has_line,
    })
}

fn byte(table: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = table.split_first()?;
    *table = rest;
    Some(first)
}

/// Six bits in each byte, the lowest first; bit 6 is set if another byte follows.
fn varint(table: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = byte(table)?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sign is in the lowest bit.
fn signed(table: &mut &[u8]) -> Option<i64> {
    let value = varint(table)?;
    let magnitude = (value >> 1) as i64;
    Some(if value & 1 == 1 {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_entry() {
        let table = [
            0x80 | 15 << 3, // no location, 1 unit
            0x80 | 11 << 3 | 1,
            0,
            5, // next line, 2 units
            0x80 | 3 << 3,
            0x12, // same line, 1 unit
            0x80 | 13 << 3,
            0b11, // previous line, 1 unit
            0x80 | 14 << 3 | 7,
            0x40 | 8,
            1, // 36 lines on, 8 units
            0,
            1,
            1,
        ];
        let lines = LineTable::decode(&table, 10);
        let found: Vec<u32> = (0..14).map(|unit| lines.line(unit * UNIT)).collect();
        assert_eq!(
            found,
            [0, 11, 11, 11, 10, 46, 46, 46, 46, 46, 46, 46, 46, 0]
        );
    }

    #[test]
    fn entries_of_one_line_become_one() {
        // Forty units on the next line, each with columns of its own.
        let mut table = vec![0x80 | 11 << 3, 4, 9];
        table.extend([0x80 | 3 << 3, 0x21].repeat(39));
        // An entry has at most eight units: five entries, of which the first has the change of the line.
        let mut short = vec![0x80 | 13 << 3 | 7, 0b10];
        short.extend([0x80 | 13 << 3 | 7, 0].repeat(4));
        assert_eq!(without_columns(&table), short);
    }

    #[test]
    fn a_table_ends_before_what_is_no_entry() {
        let table = [0x80 | 11 << 3, 4, 9, 0x03, 0x21, 0x80 | 11 << 3, 4, 9];
        let lines = LineTable::decode(&table, 10);
        assert_eq!((lines.line(0), lines.line(UNIT)), (11, 0));
        assert_eq!(line_at(&table, 10, UNIT), 0);
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(table in prop::collection::vec(any::<u8>(), 0..300), first: u32, at: u32) {
            let lines = LineTable::decode(&table, first);
            let _ = lines.line(at);
            prop_assert_eq!(lines.line(u32::MAX), 0);
            let short = without_columns(&table);
            prop_assert_eq!(LineTable::decode(&short, first), lines);
        }

        #[test]
        fn columns_are_left_out(entries in prop::collection::vec((0_u8..6, 1_u8..9, -300_i64..300), 0..200), first in 1_u32..100_000) {
            let mut table = Vec::new();
            for (form, units, delta) in entries {
                let start = |code: u8| 0x80 | code << 3 | (units - 1);
                match form {
                    0 => table.extend([start(3), 0x21]),
                    1 => table.extend([start(11), 4, 9]),
                    2 => table.push(start(NO_LINE)),
                    3 => {
                        table.push(start(NO_COLUMNS));
                        put_signed(&mut table, delta);
                    }
                    _ => {
                        table.push(start(14));
                        put_signed(&mut table, delta);
                        table.extend([0, 5, 64 | 9, 1]);
                    }
                }
            }
            let short = without_columns(&table);
            prop_assert!(short.len() <= table.len());
            prop_assert_eq!(LineTable::decode(&short, first), LineTable::decode(&table, first));
            prop_assert_eq!(without_columns(&short), short.clone());
            let lines = LineTable::decode(&table, first);
            for offset in 0..table.len() as u32 {
                prop_assert_eq!(line_at(&short, first, offset), lines.line(offset));
            }
        }
    }
}
