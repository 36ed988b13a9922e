//! The table and the tree, for a terminal.

use super::{Besides, Branch, ByLabel, HolderRow, Holders, OfType};
use crate::estimate::Estimate;
use crate::text::{self, Cut};

/// Columns of the amount and the share.
const AMOUNT: usize = 18;
const SHARE: usize = 5;
/// The widest holder.
const HOLDER: usize = 48;

impl Holders {
    /// The table of holders.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut out = self.head();
        out.push_str(&titles("retained", "holder"));
        let holder = self.holders.iter().map(|row| text::width(&row.holder));
        let holder = holder.max().unwrap_or(0).min(HOLDER).min(width / 2);
        for row in &self.holders {
            out.push_str(&line(row, holder, width));
        }
        if self.holders.is_empty() {
            out.push_str("no single object holds 2 % of it; see --tree and --by type\n");
        }
        self.foot(&mut out);
        out
    }

    /// The table of types.
    #[must_use]
    pub fn render_types(&self, width: usize) -> String {
        let mut out = self.head();
        out.push_str(&titles("alive", "type"));
        let of_type = |row: &OfType| {
            let mut what = row.name.clone();
            if let Some((holder, part)) = &row.held_by {
                what = format!("{what}  {} held by {holder}", text::percent(*part));
            }
            cut(&amounts(&row.bytes, row.share), &what, width)
        };
        out.extend(self.types.iter().map(of_type));
        self.foot(&mut out);
        out
    }

    /// The table of a label's values, each with its holders below.
    #[must_use]
    pub fn render_labels(&self, width: usize) -> String {
        let mut out = self.head();
        let ByLabel { key, rows } = match &self.by_label {
            Some(by_label) => by_label,
            None => return out,
        };
        out.push_str(&titles("alive", &text::clean(key)));
        for row in rows {
            out.push_str(&cut(&amounts(&row.bytes, row.share), &row.value, width));
            for held in &row.holders {
                let what = format!("    held by {}  {}", held.holder, held.what);
                out.push_str(&cut(&amounts(&held.bytes, held.share), &what, width));
            }
        }
        self.foot(&mut out);
        out
    }

    /// The tree.
    #[must_use]
    pub fn render_tree(&self, width: usize) -> String {
        let mut out = self.head();
        out.push_str(&titles("retained", "holder"));
        branches(&self.tree, 0, width, &mut out);
        self.foot(&mut out);
        out
    }

    fn head(&self) -> String {
        let when = match self.reason {
            "end" => "at the end",
            "peak" => "at the peak",
            _ => "at a snapshot",
        };
        let program = text::clean(self.program.rsplit('/').next().unwrap_or_default());
        let program = match program.is_empty() {
            true => format!("process {}", self.pid),
            false => program,
        };
        let alive = &self.alive;
        let mut head = format!(
            "{program}: what was alive {when}, after {}: {} ({}), {}\n{} in {} of CPU time, in a copy of the process; the program stood still for {}\n",
            text::duration(self.at_nanos),
            text::bytes(alive.estimate),
            text::range(alive.low, alive.estimate, alive.high),
            text::counted(self.samples, "sample"),
            text::counted(self.objects, "object"),
            text::duration(self.cpu_nanos),
            text::duration(self.pause_nanos),
        );
        if !self.labels.is_empty() {
            let labels = text::clean(&self.labels.join(", "));
            head.push_str(&format!("only what was allocated under {labels}\n"));
        }
        for note in &self.notes {
            head.push_str(&text::clean(note));
            head.push('\n');
        }
        head.push('\n');
        head
    }

    fn foot(&self, out: &mut String) {
        let Besides {
            c_code,
            garbage,
            not_found,
            native,
        } = &self.besides;
        let of = |estimate: &Estimate| match estimate.estimate > 0.0 && !estimate.is_wide() {
            true => text::bytes(estimate.estimate),
            false => text::wide_range(estimate.low, estimate.high),
        };
        out.push_str(&format!(
            "\nheld by {} {}; garbage not yet collected {}; no holder found {}\n",
            if self.is_pypy {
                "PyPy itself"
            } else {
                "C code"
            },
            of(c_code),
            of(garbage),
            of(not_found),
        ));
        if !native.is_empty() {
            let rows = native
                .iter()
                .map(|row| format!("{} {}", text::clean(&row.name), of(&row.bytes)));
            out.push_str(&format!(
                "native memory without a holder: {}\n",
                rows.collect::<Vec<_>>().join("; ")
            ));
        }
        out.push_str(
            "A holder's size is what would be freed without it. References of running C code are not counted.\n",
        );
    }
}

fn titles(amount: &str, what: &str) -> String {
    format!("{amount:>AMOUNT$}  {:>SHARE$}  {what}\n", "share")
}

/// An amount with its error, and its share.
fn amounts(bytes: &Estimate, share: f64) -> String {
    let amount = bytes.with_error();
    format!("{amount:>AMOUNT$}  {:>SHARE$}", text::percent(share))
}

fn cut(amounts: &str, what: &str, width: usize) -> String {
    let room = width
        .max(text::NARROWEST)
        .saturating_sub(AMOUNT + SHARE + 4);
    format!("{amounts}  {}\n", text::fit(what, room, Cut::End))
}

fn line(row: &HolderRow, holder: usize, width: usize) -> String {
    let mut what = row.what.clone();
    if let Some((place, _)) = &row.allocated_by {
        what = format!("{what}; allocated by {place}");
    }
    let mut line = cut(
        &amounts(&row.bytes, row.share),
        &format!("{}  {what}", text::pad(&row.holder, holder, Cut::Start)),
        width,
    );
    if !row.also.is_empty() {
        let also = format!(
            "also held by {}: freed only when all let go",
            row.also.join(" and ")
        );
        line.push_str(&cut(
            &" ".repeat(AMOUNT + SHARE + 2),
            &format!("  {also}"),
            width,
        ));
    }
    line
}

fn branches(all: &[Branch], depth: usize, width: usize, out: &mut String) {
    for branch in all {
        let mut what = format!("{}{}", "  ".repeat(depth), branch.reference);
        if !branch.what.is_empty() && branch.what != branch.reference {
            what = format!("{what}  {}", branch.what);
        }
        if branch.objects > 1 {
            what = format!("{what} ×{}", text::grouped(branch.objects));
        }
        out.push_str(&cut(&amounts(&branch.bytes, branch.share), &what, width));
        branches(&branch.children, depth + 1, width, out);
    }
}
