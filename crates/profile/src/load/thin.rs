//! Keeps a part of the samples of many files, so that a fleet of thousands fits into memory.
//!
//! When there are too many samples, each one stays with a probability of one half, and those that stay stand for those that do not, as for samples that
//! were lost ([`Sampling::lost`]): no figure is biased, and all intervals are wider. All files have the same part in the end. Samples of recordings of
//! every allocation all stay: their figures are exact.

use super::Loader;
use crate::meta::Distances;
use crate::model::{LOST_UNIT, Sampling, SamplingId};

#[derive(Clone, Default)]
pub(super) struct Thinning {
    /// How often samples were halved.
    halvings: u32,
    /// The samples before this one are as thin as that.
    done: u32,
    /// The samples that were drawn for.
    drawn: u64,
}

impl Loader {
    /// Called between two files: makes the last one as thin as those before, and all thinner if there are more samples than `most`.
    pub(crate) fn thin_samples(&mut self, most: usize) {
        if self.thinning.halvings > 0 {
            self.halve(self.thinning.done, self.thinning.halvings);
        }
        while self.profile.samples.len() > most {
            let before = self.profile.samples.len();
            self.halve(0, 1);
            self.thinning.halvings += 1;
            if self.profile.samples.len() == before {
                // They are of recordings of every allocation.
                break;
            }
        }
        self.thinning.done = self.profile.samples.len() as u32;
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
        let (every, thinner): (Vec<bool>, Vec<SamplingId>) = (0..self.profile.samplings.len()
            as u32)
            .map(|number| {
                let known = self.profile.sampling(SamplingId(number));
                if known.distances == Distances::Every {
                    return (true, SamplingId(number));
                }
                let all = (u64::from(LOST_UNIT) + u64::from(known.lost)) << times.min(31);
                let lost = u32::try_from(all - u64::from(LOST_UNIT)).unwrap_or(u32::MAX);
                let thinner = Sampling { lost, ..known };
                (false, self.sources.intern(&mut self.profile, thinner))
            })
            .unzip();
        let mask = (1_u64 << times.min(63)) - 1;
        let drawn = &mut self.thinning.drawn;
        let mut kept = Vec::with_capacity(self.profile.samples.len());
        self.profile.samples.retain(|sample| {
            let number = sample.shape.sampling.index();
            let is_kept = (kept.len() as u32) < first || every[number] || {
                *drawn += 1;
                mixed(*drawn) & mask == 0
            };
            if is_kept && kept.len() as u32 >= first {
                sample.shape.sampling = thinner[number];
            }
            kept.push(is_kept);
            is_kept
        });
        self.parts.renumber(&kept);
        self.profile.samples.number_anew();
        self.profile.keep_numbers(&kept);
    }
}

/// Splitmix64: numbers that follow each other give numbers without a pattern.
const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
