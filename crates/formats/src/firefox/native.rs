//! Native memory over time, estimated from samples: the interpreter counts its own heap, but nobody counts `malloc`.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId};

/// The most rows of a counter. With more samples, each part of the time has its last value and its highest one.
const PARTS: u64 = 4096;

/// The native memory of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Native {
    /// Estimated bytes that were allocated, and when.
    allocated: Vec<(Nanos, f64)>,
    /// The same, and what was freed as negative numbers.
    changes: Vec<(Nanos, f64)>,
}

impl Native {
    /// Native memory by process.
    pub fn of(profile: &Profile) -> Vec<Self> {
        let mut all = vec![Self::default(); profile.processes.len()];
        let weights = profile.shape_weights();
        let samples = &profile.samples;
        for id in native_samples(profile) {
            let of = &mut all[profile.process_of(samples.thread(id)).index()];
            let bytes = weights[samples.shape_id(id).0 as usize].bytes;
            of.allocated.push((samples.time(id), bytes));
            of.changes.push((samples.time(id), bytes));
            if let Some(freed) = samples.freed(id) {
                of.changes.push((freed.max(samples.time(id)), -bytes));
            }
        }
        for of in &mut all {
            of.allocated.sort_by_key(|&(time, _)| time);
            of.changes.sort_by_key(|&(time, _)| time);
        }
        all
    }

    /// Bytes in use over time, until the end of the process.
    pub fn in_use(&self, end: Nanos) -> Vec<(Nanos, u64)> {
        let mut rows = summed(&self.changes);
        if let Some(&(last, bytes)) = rows.last() {
            rows.push((end.max(last), bytes));
        }
        rows
    }

    /// Adds what was allocated until each time to a count of other memory. Without such a count, this is all.
    pub fn added_to(&self, counted: Vec<(Nanos, u64)>) -> Vec<(Nanos, u64)> {
        if counted.is_empty() {
            return summed(&self.allocated);
        }
        let mut sum = 0.0;
        let mut left = self.allocated.iter().peekable();
        let with_native = counted.into_iter().map(|(time, bytes)| {
            while let Some((_, more)) = left.next_if(|&&(at, _)| at <= time) {
                sum += more;
            }
            (time, bytes.saturating_add(whole(sum)))
        });
        with_native.collect()
    }
}

/// The samples of native memory.
pub(super) fn native_samples(profile: &Profile) -> impl Iterator<Item = SampleId> + '_ {
    use nthbyte_profile::Domain::Native;
    let has_native = profile
        .sources
        .iter()
        .any(nthbyte_profile::Source::is_native);
    let ids = profile.samples.ids().filter(move |_| has_native);
    ids.filter(|&id| profile.domain(id) == Native)
}

/// The running sum of changes that are ordered by time, in not too many rows.
fn summed(changes: &[(Nanos, f64)]) -> Vec<(Nanos, u64)> {
    let end = changes.last().map_or(0, |&(time, _)| time.0);
    let width = if changes.len() as u64 > PARTS {
        end / (PARTS / 2) + 1
    } else {
        0
    };
    let mut rows: Vec<(Nanos, u64)> = Vec::new();
    let mut sum = 0.0;
    let part_of = |time: Nanos| time.0.checked_div(width);
    let mut highest = (Nanos(0), 0);
    for (at, &(time, change)) in changes.iter().enumerate() {
        sum += change;
        let now = (time, whole(sum));
        if now.1 >= highest.1 {
            highest = now;
        }
        let part = part_of(time);
        let is_last = part.is_none()
            || changes
                .get(at + 1)
                .is_none_or(|next| part_of(next.0) != part);
        if is_last {
            if highest.0 < time && highest.1 > now.1 {
                rows.push(highest);
            }
            rows.push(now);
            highest = (Nanos(0), 0);
        }
    }
    rows
}

fn whole(bytes: f64) -> u64 {
    // A sum that is below zero by a rounding error becomes zero.
    bytes.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_keep_their_end_and_their_peak() {
        let changes: Vec<(Nanos, f64)> = (0..100_000)
            .map(|at| {
                (
                    Nanos(at * 10),
                    if at == 77_777 {
                        1e6
                    } else if at == 77_778 {
                        -1e6
                    } else {
                        1.0
                    },
                )
            })
            .collect();
        let rows = summed(&changes);
        assert!(rows.len() as u64 <= PARTS + 1, "{}", rows.len());
        assert_eq!(rows.last(), Some(&(Nanos(999_990), 99_998)));
        let peak = rows.iter().max_by_key(|row| row.1);
        assert_eq!(peak, Some(&(Nanos(777_770), 1_077_777)));
        assert!(rows.is_sorted_by_key(|row| row.0));
        assert_eq!(summed(&changes[..3]).len(), 3);
    }

    #[test]
    fn native_memory_is_added_to_what_was_counted() {
        let allocated = vec![(Nanos(5), 100.0), (Nanos(15), 10.0)];
        let native = Native {
            changes: allocated.clone(),
            allocated,
        };
        let counted = vec![(Nanos(0), 1), (Nanos(5), 2), (Nanos(20), 3)];
        let sum = vec![(Nanos(0), 1), (Nanos(5), 102), (Nanos(20), 113)];
        assert_eq!(native.added_to(counted), sum);
        assert_eq!(
            native.added_to(Vec::new()),
            [(Nanos(5), 100), (Nanos(15), 110)]
        );
    }
}
