//! The verdicts for a terminal.

use std::fmt::Write;

use super::{Finding, LeakPlace, Leaks, Repeats, Report, Retainer, Share, Together, Verdict};
use crate::columns::{Named, place, wrap};
use crate::estimate::Estimate;
use crate::fold;
use crate::text::{self, Cut};

/// The smallest width of a line.
const NARROWEST: usize = 60;

/// From this width on the table has curves.
const ROOMY: usize = 90;

/// The largest number of undecided findings that are shown for each profile.
const UNDECIDED: usize = 3;

/// Columns of the curve of a finding, and of the ones in the table.
const WIDE: usize = 48;
const NARROW: usize = 16;

impl Leaks {
    /// The verdicts as text with lines of at most `width` columns (but at least 60).
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        let several = self.profiles.len() > 1;
        let shared: Vec<&Together> = self
            .findings
            .iter()
            .filter(|one| one.processes.len() > 1)
            .collect();
        for together in &shared {
            wrap(&mut text, &together.sentence(self.profiles.len()), width);
        }
        for (number, report) in self.profiles.iter().enumerate() {
            if number > 0 || !shared.is_empty() {
                text.push('\n');
            }
            report.render(&mut text, width, several, &shared);
        }
        // Only a finding has intervals, or is called a leak.
        if self
            .profiles
            .iter()
            .all(|report| report.findings.is_empty())
        {
            return text;
        }
        let percent = 100.0 * self.false_discovery_rate;
        let tests = text::grouped(self.tests as u64);
        let last = if self.tests > 0 && self.profiles.iter().any(|report| report.heap.is_none()) {
            let plural = if self.tests == 1 { "" } else { "s" };
            format!(
                "Intervals are 95 %. Of the places that are called a leak, up to {percent} % may be false alarms ({tests} test{plural})."
            )
        } else {
            "Intervals are 95 %.".to_owned()
        };
        text.push('\n');
        wrap(&mut text, &last, width);
        text
    }
}

impl Report {
    fn render(&self, text: &mut String, width: usize, several: bool, shared: &[&Together]) {
        let command = text::fit(&self.command.join(" "), 200, Cut::End);
        let interpreter = text::clean(&self.interpreter);
        let took = text::duration(self.duration_nanos);
        let samples = text::counted(self.samples, "sample");
        let mut head = format!("{command} · {interpreter} · {took} · {samples}");
        if several {
            let _ = write!(head, " · process {}", self.pid);
        }
        wrap(text, &head, width);
        for limit in &self.limits {
            wrap(
                text,
                &format!("! {}", text::fit(limit, 300, Cut::End)),
                width,
            );
        }
        text.push('\n');
        wrap(text, &self.headline(), width);
        for finding in &self.findings {
            text.push('\n');
            let first = shared
                .iter()
                .find(|one| one.place.of_function() == finding.place.of_function());
            match first.and_then(|one| one.processes.first()) {
                Some(&first) if first != self.pid => {
                    let line = format!(
                        "{}, as in process {first}: holds {}",
                        name(&finding.place),
                        text::bytes(finding.held.estimate)
                    );
                    wrap(text, &line, width);
                }
                _ => self.finding(text, width, finding),
            }
        }
        if let Some(heap) = &self.heap {
            wrap(text, &heap.sentence(self.repeats), width);
        }
        let (progress, rest): (Vec<_>, Vec<_>) = self
            .undecided
            .iter()
            .partition(|one| one.verdict == Verdict::InProgress);
        let (grew, may): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|one| one.verdict == Verdict::Grew);
        let heading = match self.heap {
            None if self.repeats == Repeats::Rounds => "May leak:",
            None => "May have grown; there is too little data to be sure:",
            Some(_) => "Allocates objects that survive, steadily until the end:",
        };
        for (heading, findings) in [
            ("Grew while it ran:", grew),
            ("Work in progress: only running calls hold it:", progress),
            (heading, may),
        ] {
            if findings.is_empty() {
                continue;
            }
            text.push('\n');
            wrap(text, heading, width);
            for finding in findings.iter().take(UNDECIDED) {
                self.undecided(text, width, finding);
            }
            let more = findings.len().saturating_sub(UNDECIDED);
            if more > 0 {
                let _ = writeln!(text, "  … and {more} more");
            }
        }
        // Of several processes, only those with something to say have the whole list.
        let is_quiet = several && self.findings.is_empty() && self.undecided.is_empty();
        if !self.others.is_empty() && !is_quiet {
            let (few, known): (Vec<_>, Vec<_>) = self
                .others
                .iter()
                .partition(|other| other.verdict == Verdict::TooFew);
            let known_heading = match self.no_verdict() {
                None => "Holds memory, but does not leak:",
                Some(_) => "Holds memory:",
            };
            for (heading, others) in [
                (known_heading, known),
                (
                    "Holds memory; a longer run or a smaller --every would tell whether it leaks:",
                    few,
                ),
            ] {
                if !others.is_empty() {
                    text.push('\n');
                    wrap(text, heading, width);
                }
                for other in &merged(others) {
                    holder(text, width, other);
                }
            }
            if self.others_left_out > 0 {
                let _ = writeln!(text, "  … and {} more", self.others_left_out);
            }
            if self.others.iter().any(|other| other.freed_at_end) {
                wrap(
                    text,
                    "What is freed as the program ends counts as held here, and not as live at the end.",
                    width,
                );
            }
        }
    }

    pub(super) fn show(&self, bytes: &Estimate) -> String {
        if self.exact {
            text::bytes(bytes.estimate)
        } else {
            let range = text::range(bytes.low.max(0.0), bytes.estimate, bytes.high);
            format!("{} ({range})", text::bytes(bytes.estimate))
        }
    }

    fn finding(&self, text: &mut String, width: usize, finding: &Finding) {
        let place = name(&finding.place);
        let who = match finding.may_be_of_others() {
            true => format!("Something, in blocks that were made for objects of {place},"),
            false => place,
        };
        let line = format!(
            "{who} keeps {} of every MiB that the program allocates: {}, no sign of levelling off; {} {}",
            text::bytes(finding.per_mib),
            self.growth(finding),
            if finding.freed_at_end {
                "held, until the program's end,"
            } else {
                "holds"
            },
            text::bytes(finding.held.estimate),
        );
        wrap(text, &line, width);
        let _ = writeln!(
            text,
            "  {} live bytes over the run",
            sparkline(&finding.curve, WIDE.min(width - 27))
        );
        self.evidence(text, width, finding);
    }

    fn evidence(&self, text: &mut String, width: usize, finding: &Finding) {
        let mut say = |line: String| indented(text, &line, width);
        let types = finding.types.iter().take(3);
        let types: Vec<String> = types
            .map(|share| with_share(share, |name| text::fit(name, 40, Cut::End)))
            .collect();
        let kept = if finding.kept > 0.0 && finding.kept < 0.0005 {
            "less than 0.1 %".to_owned()
        } else {
            text::percent(finding.kept)
        };
        let samples = text::counted(finding.samples, "live sample");
        let chance = match self.heap {
            None if finding.container.is_some() => String::new(),
            None => format!(
                " · by chance: p = {:.1e}, adjusted {:.1e}",
                finding.p, finding.adjusted_p
            ),
            Some(_) => String::new(),
        };
        if let Some(held) = &finding.held_by {
            say(held.line());
        }
        say(format!(
            "{} · {kept} of what is allocated here outlives half of the run · {samples}{chance}",
            types.join(", ")
        ));
        if !finding.labels.is_empty() {
            let labels = finding.labels.iter();
            let labels: Vec<String> = labels
                .map(|share| with_share(share, |label| text::fit(label, 60, Cut::End)))
                .collect();
            say(format!("for {}", labels.join(", ")));
        }
        if finding.lines.len() > 1 {
            let lines = finding.lines.iter().take(6);
            let lines: Vec<String> = lines
                .map(|line| with_share(line, |place| place.line.to_string()))
                .collect();
            say(format!("lines {}", lines.join(", ")));
        }
        if let Some(inner) = &finding.inner {
            say(format!("allocated in {}", name(inner)));
        }
        if let Some(container) = &finding.container {
            say(format!(
                "one block, reallocated {} times: from {} to {}",
                container.steps,
                text::bytes(container.from),
                text::bytes(container.to)
            ));
        }
        for part in &finding.parts {
            let (growth, time) = match &part.per_minute {
                Some(growth) => (growth, "a minute".to_owned()),
                None => (
                    &part.grown,
                    format!("in {}", text::duration(finding.grown_nanos)),
                ),
            };
            say(format!(
                "with {}: +{} {time}, holds {}",
                name(&part.place),
                text::bytes(growth.estimate.max(0.0)),
                text::bytes(part.held.estimate)
            ));
        }
        if finding.is_of_reused_types() && finding.taken_over.is_empty() {
            say("CPython uses blocks of these types again without freeing them: lines that drop such objects may have \
                 allocated more of these, and lines that keep them may hold some".to_owned());
        }
        for part in &finding.taken_over {
            say(format!(
                "{} of this growth are blocks of {}, whose objects die: CPython uses such blocks again without freeing them",
                text::bytes(part.grown.estimate.max(0.0)),
                name(&part.place)
            ));
        }
        if !finding.callers.is_empty() {
            let callers: Vec<String> = finding.callers.iter().map(name).collect();
            say(format!("called by {}", callers.join(" ← ")));
        }
    }

    fn undecided(&self, text: &mut String, width: usize, finding: &Finding) {
        let reused = ": CPython keeps freed blocks of these types for later use, so these may be such a stock, or belong to another line now";
        let otherwise = match finding.verdict {
            Verdict::Reused => reused.to_owned(),
            Verdict::Grew | Verdict::InProgress => format!(", {}", self.growth(finding)),
            _ => String::new(),
        };
        let more = finding.more_minutes.map_or(otherwise, |minutes| {
            let longer = text::duration((minutes * 60e9) as u64);
            let period = (self.period / 4).max(1);
            if self.exact || self.period < 4096 || !finding.is_notable() {
                format!(": run for about {longer} more")
            } else {
                format!(
                    ": run for about {longer} more, or with --every {}",
                    period_text(period)
                )
            }
        });
        let does = match self.heap {
            None => "holds",
            Some(_) => "made",
        };
        let line = format!(
            "{} {}, {does} {}{more}",
            sparkline(&finding.curve, NARROW),
            name(&finding.place),
            text::bytes(finding.held.estimate)
        );
        let line = match &finding.held_by {
            Some(held) => format!("{line}; {}", held.line()),
            None => line,
        };
        indented(text, &line, width);
    }
}

/// Adds a line that continues the previous one.
fn indented(text: &mut String, line: &str, width: usize) {
    let mut wrapped = String::new();
    wrap(&mut wrapped, line, width - 2);
    for line in wrapped.lines() {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
}

/// The holders, largest first. Those that have the same verdict and are shown by the same name for folded frames are one.
fn merged(holders: Vec<&Retainer>) -> Vec<Retainer> {
    let mut merged: Vec<Retainer> = Vec::new();
    for holder in holders {
        let name = fold::stands_for(&holder.place.file);
        let same = merged.iter_mut().find(|other| {
            name.is_some()
                && fold::stands_for(&other.place.file) == name
                && why(other.verdict) == why(holder.verdict)
                && other.curve.len() == holder.curve.len()
        });
        match same {
            Some(other) => {
                // Only the estimate is shown.
                other.held.estimate += holder.held.estimate;
                let points = other.curve.iter_mut().zip(&holder.curve);
                points.for_each(|(sum, point)| *sum += point);
            }
            None => merged.push(holder.clone()),
        }
    }
    merged.sort_by(|one, other| other.held.estimate.total_cmp(&one.held.estimate));
    merged
}

/// Why the held bytes are no leak.
fn why(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::StartUp => "allocated at start-up",
        Verdict::Imported => "imported modules",
        Verdict::Burst => "allocated in a burst",
        Verdict::Replaced => "stays full: a cache or a pool",
        Verdict::Slowing => "grows less and less",
        Verdict::Shrank => "has shrunk",
        Verdict::TooFew => "has too few samples to tell",
        Verdict::LevelledOff
        | Verdict::Leak
        | Verdict::Grew
        | Verdict::NotEnoughData
        | Verdict::Suspect
        | Verdict::InProgress
        | Verdict::Reused => "has levelled off",
    }
}

fn holder(text: &mut String, width: usize, holder: &Retainer) {
    let why = why(holder.verdict);
    let mut start = format!("  {:>8}  ", text::bytes(holder.held.estimate));
    if width >= ROOMY {
        let _ = write!(start, "{}  ", sparkline(&holder.curve, NARROW));
    }
    let _ = write!(start, "{why:<31}  ");
    let left = width.saturating_sub(text::width(&start)).max(12);
    text.push_str(&start);
    let at = &holder.place;
    match fold::stands_for(&at.file) {
        Some(name) => text.push_str(name),
        None => {
            let named = Named {
                name: &at.function,
                file: &at.file,
                line: at.line,
                more: "".into(),
            };
            text.push_str(&named.fit(left));
        }
    }
    text.push('\n');
}

fn with_share<T>(share: &Share<T>, show: impl Fn(&T) -> String) -> String {
    let what = show(&share.what);
    if share.share > 0.995 {
        what
    } else {
        format!("{what} {}", text::percent(share.share))
    }
}

/// A place in a sentence: the function, the end of the file's path, and the line; or the name that stands for it.
pub(crate) fn name(at: &LeakPlace) -> String {
    if let Some(name) = fold::stands_for(&at.file) {
        return name.to_owned();
    }
    let name = text::fit(&at.function, 60, Cut::End);
    let place = place(&at.file, at.line, 2);
    format!("{name} {}", text::fit(&place, 60, Cut::Start))
        .trim_end()
        .to_owned()
}

fn period_text(period: u64) -> String {
    match period {
        0..1024 => format!("{period}"),
        1024..1_048_576 => format!("{}KiB", period / 1024),
        _ => format!("{}MiB", period / 1_048_576),
    }
}

/// A curve from 0 to its largest value, one character a point.
fn sparkline(curve: &[f64], columns: usize) -> String {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = curve.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let columns = columns.min(curve.len()).max(1);
    let column = |number: usize| {
        let from = number * curve.len() / columns;
        let to = ((number + 1) * curve.len() / columns)
            .max(from + 1)
            .min(curve.len());
        let points = curve.get(from..to).unwrap_or_default();
        let mean = points.iter().sum::<f64>() / points.len().max(1) as f64;
        HEIGHTS[((mean / largest * 8.0).ceil() as usize).min(8)]
    };
    (0..columns).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0], 4), " ▁▄█");
        assert_eq!(sparkline(&[0.0, 8.0, 8.0, 8.0], 2), "▄█");
        assert_eq!(sparkline(&[], 4), " ");
    }
}
