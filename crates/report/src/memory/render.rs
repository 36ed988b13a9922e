//! The report as a table.

use std::fmt::Write;

use super::{MemoryKey, MemoryReport, MemoryRow};
use crate::columns::wrap;
use crate::leaks::name;
use crate::text::{self, Cut};

/// Columns of the names.
const NAMES: usize = 40;
/// Columns of the bytes.
const BYTES: usize = 10;
/// Columns of the share of the resident set, with the space before it.
const PERCENT: usize = 8;
/// Holders are named if they hold at least this part of the resident set.
const WORTH_NAMING: f64 = 0.005;
/// Two readings are of one moment if they are no farther apart, in nanoseconds.
const SAME_MOMENT: u64 = 500_000_000;
/// Holders that are shown.
const SHOWN: usize = 5;
/// Columns for the name of a holder beside its figures, at least.
const SHORTEST_NAME: usize = 20;

impl MemoryReport {
    /// The report as a table for a terminal of this width.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut out = String::new();
        let width = width.max(text::NARROWEST);
        let room = width.saturating_sub(NAMES + BYTES + PERCENT + text::GAP);
        // Without room for all intervals there are none; the JSON has them.
        let intervals = self
            .rows
            .iter()
            .all(|row| text::width(&interval(row)) <= room);
        let when = match self.at {
            "peak" if self.is_missed_peak() || self.is_apart => "in the largest reading, ",
            "peak" => "at its peak, ",
            "end" => "at the end, ",
            _ => "at ",
        };
        let whole = self.rss as f64;
        let _ = writeln!(
            out,
            "{} of RSS {when}{}",
            text::bytes(whole),
            text::duration(self.at_nanos),
        );
        if self.processes > 1 {
            let _ = writeln!(out, "of {} processes together", self.processes);
        }
        let mut groups = self.groups().into_iter();
        let mut group = "";
        for row in &self.rows {
            if row.group != group
                && let Some((next, sum)) = groups.next()
            {
                group = next;
                out.push('\n');
                // A row below zero may be larger than all others of its group.
                line(&mut out, group, sum.max(0.0), whole, "");
            }
            if row.key.group() != row.key.name() && row.key != MemoryKey::Agent {
                let name = format!("  {}", row.key.name());
                let interval = if intervals {
                    interval(row)
                } else {
                    String::new()
                };
                line(&mut out, &name, row.bytes.estimate, whole, &interval);
            }
        }
        if self.swapped > 0 {
            let _ = write!(
                out,
                "\n{} more were swapped out.\n",
                text::bytes(self.swapped as f64)
            );
        }
        self.render_holders(&mut out, width);
        for note in &self.notes {
            out.push('\n');
            wrap(&mut out, &format!("note: {note}"), width);
        }
        out
    }

    /// Whether no reading is near the largest resident set. The reading that is shown may itself be a hundredth below the
    /// largest one.
    fn is_missed_peak(&self) -> bool {
        let is_larger = |peak: u64| peak as f64 > 1.02 * self.rss as f64;
        self.at == "peak" && self.peak_rss.is_some_and(is_larger)
    }

    fn render_holders(&self, out: &mut String, width: usize) {
        let Some(holders) = &self.holders else {
            return;
        };
        if (holders.free as f64) < WORTH_NAMING * self.rss as f64 {
            return;
        }
        let when = match holders.at_nanos.abs_diff(self.at_nanos) {
            0..=SAME_MOMENT => String::new(),
            _ => format!("After {}, ", text::duration(holders.at_nanos)),
        };
        let mut sentence = format!(
            "{when}{} of free blocks are in pages that live blocks hold",
            text::bytes(holders.free as f64),
        );
        if holders.sparse_free > 0 {
            let _ = write!(
                sentence,
                "; {} of them in pages of which at most a quarter is in use",
                text::bytes(holders.sparse_free as f64)
            );
        }
        sentence.push('.');
        out.push('\n');
        wrap(out, &sentence, width);
        let shown = holders
            .holders
            .iter()
            .filter(|of| of.free.estimate >= WORTH_NAMING * self.rss as f64);
        let shown: Vec<_> = shown.take(SHOWN).collect();
        if !shown.is_empty() {
            out.push_str("Held by what survives of:\n");
        }
        for of in shown {
            let figures = format!(
                "{} ({}), by {} live",
                text::bytes(of.free.estimate),
                text::range(of.free.low, of.free.estimate, of.free.high),
                text::bytes(of.live.estimate)
            );
            let beside = width.saturating_sub(text::width(&figures) + 4);
            // Where a name would be cut too short, it has a line of its own.
            let (gap, room) = if beside < SHORTEST_NAME {
                ("\n    ", width - 4)
            } else {
                ("  ", beside)
            };
            let name = text::fit(&name(&of.place), room, Cut::Middle);
            let _ = writeln!(out, "  {figures}{gap}{name}");
            if let Some(held) = &of.held_by {
                let line = text::fit(&held.line(), width - 4, Cut::End);
                let _ = writeln!(out, "    {line}");
            }
        }
    }
}

fn line(out: &mut String, name: &str, bytes: f64, whole: f64, interval: &str) {
    let percent = percent(100.0 * bytes / whole.max(1.0));
    let shown = match bytes {
        bytes if bytes < 0.0 => text::signed_bytes(bytes),
        bytes => text::bytes(bytes),
    };
    let text = format!(
        "{}{shown:>BYTES$}{percent:>PERCENT$}  {interval}",
        text::pad(name, NAMES, Cut::End)
    );
    out.push_str(text.trim_end());
    out.push('\n');
}

/// A share of the resident set, in less than [`PERCENT`] columns: addresses may be many times the resident set.
fn percent(share: f64) -> String {
    const LARGEST: f64 = 99_999.0;
    if share > LARGEST {
        return ">99999%".to_owned();
    }
    if share < -LARGEST {
        return "<−9999%".to_owned();
    }
    // What rounds to four digits has no room for a decimal.
    let decimals = usize::from(share.abs() < 999.95);
    format!("{}{:.decimals$}%", text::sign(share.min(0.0)), share.abs())
}

/// The interval of an estimate; nothing for a count.
fn interval(row: &MemoryRow) -> String {
    let bytes = &row.bytes;
    if row.counted || bytes.low >= bytes.high {
        return String::new();
    }
    if bytes.is_wide() {
        return text::wide_range(bytes.low, bytes.high);
    }
    text::range(bytes.low, bytes.estimate, bytes.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_leaves_a_space_before_it() {
        for (share, shown) in [
            (0.0, "0.0%"),
            (99.96, "100.0%"),
            (999.949, "999.9%"),
            (999.951, "1000%"),
            (17_896.5, "17896%"),
            (-17_732.6, "−17733%"),
            (1e6, ">99999%"),
            (-1e30, "<−9999%"),
            (f64::INFINITY, ">99999%"),
        ] {
            assert_eq!(percent(share), shown);
            assert!(text::width(&percent(share)) < PERCENT);
        }
    }
}
