//! What the verdicts say in sentences.

use super::render::name;
use super::{Finding, MINUTE_FROM, Repeats, Report, SHORTEST, Together, Verdict, WholeHeap};
use crate::text;

/// The largest number of processes whose numbers are shown.
const PROCESSES: usize = 6;

impl Report {
    /// How small a leak may have gone unnoticed: `4.3 MiB a minute`, or of a short run, `1.2 MiB in 18.2 s`.
    pub(crate) fn unnoticed(&self) -> String {
        match self.unnoticed_per_minute {
            Some(bytes) => format!("{} a minute", text::bytes(bytes)),
            None => {
                let seen = text::duration((self.duration_nanos as f64 * 0.9) as u64);
                format!("{} in {seen}", text::bytes(self.unnoticed))
            }
        }
    }

    /// Why there is no verdict, in one sentence; `None` if there is one.
    pub(crate) fn no_verdict(&self) -> Option<String> {
        let needs = text::duration(SHORTEST);
        let took = text::duration(self.duration_nanos);
        let busy = text::percent(1.0 - self.waited.unwrap_or(0.0));
        let grew = self
            .undecided
            .iter()
            .any(|one| one.verdict == Verdict::Grew);
        let cannot = if grew {
            ": one pass cannot tell a leak from a result that is being built (if it repeats its work, add --repeated)"
        } else {
            ""
        };
        match self.repeats {
            Repeats::Rounds => None,
            Repeats::TooShort => Some(format!(
                "No verdict on leaks: it needs {needs} of a program that repeats its work, and this run took {took}."
            )),
            Repeats::OnePass => Some(format!(
                "No verdict on leaks: the program was busy for {busy} of the time, as in one pass over its work, and did not wait for \
                 more of it all along{cannot}."
            )),
            Repeats::Collects => Some(format!(
                "No verdict on leaks: the program waits, but keeps much of what it allocates, as one that collects a result{cannot}."
            )),
            Repeats::NotRecorded => Some(format!(
                "No verdict on leaks: this profile does not say whether the program repeats its work{cannot}."
            )),
        }
    }

    pub(super) fn headline(&self) -> String {
        let live = text::bytes(self.live.estimate);
        let unnoticed = self.unnoticed();
        let none = if self.undecided.is_empty() {
            "No leak was found"
        } else {
            "No leak is certain"
        };
        if let (Some(sentence), None) = (self.no_verdict(), &self.heap) {
            return format!("{sentence} {live} are live at the end.");
        }
        match self.findings.len() {
            0 if self.heap.is_some() => format!(
                "{live} survived their first collection, or were allocated as large objects."
            ),
            0 => format!(
                "{none}. {live} are live at the end; a leak of less than {unnoticed} may have gone unnoticed."
            ),
            number => {
                let held: f64 = self.findings.iter().map(held_in_all).sum();
                let held = text::bytes(held);
                let leaks = if number == 1 {
                    "1 leak".to_owned()
                } else {
                    format!("{number} leaks")
                };
                let of_live = match self.findings.iter().any(|finding| finding.freed_at_end) {
                    true => String::new(),
                    false => format!(" of the {live} that are live at the end"),
                };
                format!("{leaks}: {held}{of_live}.")
            }
        }
    }

    /// `+5.09 MiB (4.44–5.80) a minute`, or of a short run, `+1.2 MiB (1.0–1.4) in 18.2 s`.
    pub(super) fn growth(&self, finding: &Finding) -> String {
        match &finding.per_minute {
            Some(per_minute) => format!("+{} a minute", self.show(per_minute)),
            None => format!(
                "+{} in {}",
                self.show(&finding.grown),
                text::duration(finding.grown_nanos)
            ),
        }
    }
}

impl Together {
    pub(super) fn sentence(&self, of: usize) -> String {
        let growth = match &self.per_minute {
            Some(growth) => format!("+{} a minute", text::bytes(growth.estimate)),
            None => format!("+{}", text::bytes(self.grown.estimate)),
        };
        format!(
            "One leak in {} of {of} processes ({}): {}, {growth} together; they hold {}.",
            self.processes.len(),
            self.numbers(),
            name(&self.place),
            text::bytes(self.held.estimate)
        )
    }

    /// The numbers of the processes, some of them.
    pub(crate) fn numbers(&self) -> String {
        let shown: Vec<String> = self
            .processes
            .iter()
            .take(PROCESSES)
            .map(u32::to_string)
            .collect();
        let more = self.processes.len().saturating_sub(PROCESSES);
        let more = if more > 0 {
            format!(", {more} more")
        } else {
            String::new()
        };
        format!("{}{more}", shown.join(", "))
    }
}

impl WholeHeap {
    /// `+12.3 MiB a minute`, or of a short time, `+1.2 MiB in 3.4 s`.
    pub(crate) fn growth(&self) -> String {
        let (first, last) = (
            self.after_collections.first(),
            self.after_collections.last(),
        );
        let (passed, grown) = first.zip(last).map_or((0, 0.0), |(first, last)| {
            (
                last.0.saturating_sub(first.0),
                last.1 as f64 - first.1 as f64,
            )
        });
        if passed >= MINUTE_FROM {
            format!("+{} a minute", text::bytes(self.bytes_per_minute))
        } else {
            format!("+{} in {}", text::bytes(grown), text::duration(passed))
        }
    }

    pub(super) fn sentence(&self, repeats: Repeats) -> String {
        let number = self.after_collections.len();
        let ends = self
            .after_collections
            .first()
            .zip(self.after_collections.last());
        match (self.grows, ends) {
            (Some(grows), Some((first, last))) => {
                let range = format!(
                    "from {} to {} after {number} major collections",
                    text::bytes(first.1 as f64),
                    text::bytes(last.1 as f64)
                );
                if grows {
                    let growth = self.growth();
                    let what = if repeats == Repeats::Rounds {
                        "Something leaks."
                    } else {
                        "One pass cannot tell a leak from a result that is being built."
                    };
                    format!(
                        "The heap grows, {range}: {growth} (p = {:.1e}). {what}",
                        self.p
                    )
                } else {
                    format!("The heap does not keep growing: {range}.")
                }
            }
            _ => format!(
                "There is not enough data on the heap: it had {number} major collections after its start-up, and 5 are \
                 needed. Run for longer."
            ),
        }
    }
}

fn held_in_all(finding: &Finding) -> f64 {
    finding.held.estimate
        + finding
            .parts
            .iter()
            .map(|part| part.held.estimate)
            .sum::<f64>()
}
