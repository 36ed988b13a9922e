//! A leak that several processes have, told once: the workers of a server run the same lines.

use std::collections::HashMap;

use serde::Serialize;

use super::Report;
use super::findings::{Finding, LeakPlace};
use crate::estimate::Estimate;

/// A leak, and the processes in which it was found.
#[derive(Clone, Debug, Serialize)]
pub struct Together {
    /// The line that allocates most of it, in the process where it is largest.
    pub place: LeakPlace,
    /// The numbers of the processes, the one that holds most first.
    pub processes: Vec<u32>,
    /// Bytes alive at the end, in all of them.
    pub held: Estimate,
    /// Growth in bytes, in all of them.
    pub grown: Estimate,
    /// The same in bytes a minute; `None` if one of the runs is too short to say so.
    pub per_minute: Option<Estimate>,
}

/// The findings of all processes. A function's are one.
pub(super) fn of(reports: &[Report]) -> Vec<Together> {
    let mut found: Vec<(u32, &Finding)> = reports
        .iter()
        .flat_map(|report| report.findings.iter().map(|finding| (report.pid, finding)))
        .collect();
    found.sort_by(|one, other| other.1.grown.estimate.total_cmp(&one.1.grown.estimate));
    let mut all: Vec<Together> = Vec::new();
    // By function: its findings in `all`.
    let mut of_function: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (pid, finding) in found {
        let known = of_function.entry(finding.place.of_function()).or_default();
        let mut known_of = known.iter().copied();
        let same = known_of.find(|&one| !all[one].processes.contains(&pid));
        let same = same.map(|one| &mut all[one]);
        match same {
            Some(one) => {
                one.processes.push(pid);
                one.held = sum(&one.held, &finding.held);
                one.grown = sum(&one.grown, &finding.grown);
                let both = one.per_minute.as_ref().zip(finding.per_minute.as_ref());
                one.per_minute = both.map(|(one, other)| sum(one, other));
            }
            None => {
                known.push(all.len());
                all.push(Together {
                    place: finding.place.clone(),
                    processes: vec![pid],
                    held: finding.held,
                    grown: finding.grown,
                    per_minute: finding.per_minute,
                });
            }
        }
    }
    all.sort_by(|one, other| other.grown.estimate.total_cmp(&one.grown.estimate));
    all
}

/// The sum of two independent estimates.
fn sum(one: &Estimate, other: &Estimate) -> Estimate {
    let estimate = one.estimate + other.estimate;
    let low = (one.estimate - one.low).hypot(other.estimate - other.low);
    let high = (one.high - one.estimate).hypot(other.high - other.estimate);
    Estimate {
        estimate,
        low: estimate - low,
        high: estimate + high,
    }
}
