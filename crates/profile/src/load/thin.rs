//! Keeps a part of the samples of many files, so that a fleet of thousands fits into memory.
//!
//! When there are too many samples, each one stays with a probability of one half, and those that stay stand for those that do not, as for samples that
//! were lost ([`Sampling::lost`]): no figure is biased, and all intervals are wider. All files have the same part in the end. Samples of recordings of
//! every allocation all stay: their figures are exact.
//!
//! Totals of memory are thinned with them: a process whose small objects die fast has as many of them as collections, and in a fleet they took more room
//! than the samples. The largest resident set of each stretch of time stays.

use std::collections::{HashMap, HashSet};

use super::Loader;
use crate::event::Memory;
use crate::meta::{Distances, Unit};
use crate::model::{LOST_UNIT, Sampling, SamplingId};

/// So many totals of a process stay where samples are thinned, and the first and the last one.
const MOST_TOTALS: usize = 512;

#[derive(Clone, Default)]
pub(super) struct Thinning {
    /// How often samples were halved.
    halvings: u32,
    /// The samples before this one are as thin as that.
    done: u32,
    /// The samples that were drawn for.
    drawn: u64,
    /// The processes before this one have few totals.
    processes: usize,
    /// By a sampling of the files, the one of its samples that stay. No file gets it.
    thin: HashMap<SamplingId, SamplingId>,
}

impl Loader {
    /// Called between two files: makes the last one as thin as those before, and all thinner if there are more samples than `most`.
    pub(crate) fn thin_samples(&mut self, most: usize) {
        if self.thinning.halvings > 0 {
            self.halve(self.thinning.done, self.thinning.halvings);
        }
        while self.profile.samples.len() > most {
            let before = self.profile.samples.len();
            self.thinning.halvings += 1;
            self.halve(0, 1);
            if self.profile.samples.len() == before {
                // They are of recordings of every allocation.
                break;
            }
        }
        self.thinning.done = self.profile.samples.len() as u32;
        if self.thinning.halvings > 0 {
            let processes = &mut self.profile.processes;
            let known = self.thinning.processes.min(processes.len());
            for process in &mut processes[known..] {
                thin_totals(&mut process.memory);
            }
            // The next file may go on with the last one.
            self.thinning.processes = processes.len().saturating_sub(1);
        }
    }

    /// The note of a profile that was thinned.
    pub(super) fn thinning_note(&self) -> Option<String> {
        let part = 1_u64 << self.thinning.halvings.min(63);
        (part > 1).then(|| {
            format!(
                "one of {part} samples was read, so that all fit into memory: intervals are wider"
            )
        })
    }

    /// Keeps one of `1 << times` samples from this one on.
    fn halve(&mut self, first: u32, times: u32) {
        self.weigh();
        let profile = &mut self.profile;
        let thinning = &mut self.thinning;
        let mask = (1_u64 << times.min(63)) - 1;
        let mut kept = Vec::with_capacity(profile.samples.len() - first as usize);
        let every: Vec<bool> = profile
            .samplings
            .iter()
            .map(|of| of.distances == Distances::Every)
            .collect();
        // Each file is looked at once, however many there are.
        profile.samples.retain_from(first, |sample| {
            let is_kept = every[sample.shape.sampling.index()] || {
                thinning.drawn += 1;
                mixed(thinning.drawn) & mask == 0
            };
            if let Some(&thin) = thinning.thin.get(&sample.shape.sampling) {
                sample.shape.sampling = thin;
            }
            kept.push(is_kept);
            is_kept
        });
        self.parts.renumber(first, &kept);
        let process = if first == 0 { 0 } else { self.first_process };
        self.profile.keep_numbers_from(first, &kept, process);
    }

    /// Makes the samplings of samples that stay as heavy as it is due to them.
    fn weigh(&mut self) {
        let Thinning { halvings, thin, .. } = &mut self.thinning;
        let all = &mut self.profile.samplings;
        let heavier: HashSet<SamplingId> = thin.values().copied().collect();
        for number in 0..all.len() {
            let (id, known) = (SamplingId(number as u32), all[number]);
            let is_sampled = known.distances != Distances::Every && known.unit == Unit::Bytes;
            if !is_sampled || heavier.contains(&id) {
                continue;
            }
            let taken = (u64::from(LOST_UNIT) + u64::from(known.lost)) << (*halvings).min(31);
            let lost = u32::try_from(taken - u64::from(LOST_UNIT)).unwrap_or(u32::MAX);
            let heavy = Sampling { lost, ..known };
            match thin.get(&id) {
                Some(of) => all[of.index()] = heavy,
                None => {
                    thin.insert(id, SamplingId(all.len() as u32));
                    all.push(heavy);
                }
            }
        }
    }
}

/// Of each stretch of totals, the one with the largest resident set stays; and the first and the last of all.
fn thin_totals(all: &mut Vec<Memory>) {
    if all.len() <= MOST_TOTALS + 2 {
        return;
    }
    let (first, last) = (all[0], all[all.len() - 1]);
    let inner = &all[1..all.len() - 1];
    let stretches = inner.chunks(inner.len().div_ceil(MOST_TOTALS));
    let largest = stretches.filter_map(|of| of.iter().max_by_key(|total| total.rss));
    *all = [first]
        .into_iter()
        .chain(largest.copied())
        .chain([last])
        .collect();
}

/// Splitmix64: numbers that follow each other give numbers without a pattern.
const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Nanos;

    #[test]
    fn few_totals_stay_with_the_peak_the_first_and_the_last() {
        let total = |at: u64| Memory {
            time: Nanos(at),
            heap_used: None,
            heap_reserved: None,
            rss: Some(if at == 777 { 9_000 } else { at % 50 }),
            allocated: Some(at),
            peak_rss: None,
        };
        let all: Vec<Memory> = (0..5_000).map(total).collect();
        let mut few = all.clone();
        thin_totals(&mut few);
        assert!((MOST_TOTALS / 2..=MOST_TOTALS + 2).contains(&few.len()));
        assert!(few.is_sorted_by_key(|total| total.time));
        assert_eq!((few[0], few[few.len() - 1]), (all[0], all[4_999]));
        assert!(few.contains(&all[777]));
        let mut short = all[..MOST_TOTALS].to_vec();
        thin_totals(&mut short);
        assert_eq!(short.len(), MOST_TOTALS);
    }
}
