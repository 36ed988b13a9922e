//! Estimates with 95 % intervals.
//!
//! A sampled object of size `s` whose block is sampled with probability `p` stands for `s / p`
//! bytes; the sum over the samples is the Horvitz-Thompson estimate. The number of equal objects
//! that were not sampled is unknown. Given one sampled object, it has a geometric distribution with
//! mean `(1 - p) / p`. So every sample adds to the first three moments of the unsampled bytes:
//!
//! | | a sample adds |
//! |---|---|
//! | mean | `s (1 - p) / p` |
//! | variance | `s² (1 - p) / p²` |
//! | third central moment | `s³ (1 - p) (2 - p) / p³` |
//!
//! If all objects are much smaller than the period, these are the moments of the gamma distribution
//! that describes the mean of a Poisson count: shape `k` (the number of samples), scale `n` (the
//! period). Objects that are always sampled add nothing. In all other cases a shifted gamma
//! distribution with the same moments is used: an *effective count* of samples, each of an
//! *effective weight*, plus bytes that are certain.
//!
//! [`crate::interval`] makes the 95 % limits of these moments: all figures of all reports have theirs from there. Where the
//! period changed, or sources have different periods, the limits allow for what the longest one may have missed.
//!
//! The lower end of the interval is never below the bytes of the sampled objects.
//!
//! *Fixed distances.* Samples at every n-th byte are not random. The interval is correct if
//! the program's allocations meet the sample points at random. If the program allocates in a
//! regular pattern, the error can be larger or (mostly) smaller. A block that covers `k` sample
//! points counts for `k` periods; this differs from its size by less than a period.
//!
//! *Lost samples.* A sample that was kept stands for those that were lost at the same time ([`Sampling::taken`]). What was
//! allocated is sampled and kept with a smaller probability, and all else follows from that: the intervals are a longer
//! period's, and large blocks are not certain any more.
//!
//! *Every allocation.* The figures are exact, and low = estimate = high.

use nthbyte_profile::Profile;
use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::{Sampling, Shape, Weight};
use serde::Serialize;

use crate::interval::Cumulants;
use crate::periods;
use crate::text;

/// A figure and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate; its mean over many runs is the true value.
    pub estimate: f64,
    /// The true value is below this in 1 run of 40; where a longer period than the samples' was in force, in up to
    /// 1 of 20.
    pub low: f64,
    /// The true value is above this in 1 run of 40 at most.
    pub high: f64,
}

/// An interval is wide if an end is farther from the estimate than this part of it. From 100 % on, a
/// distance suggests values below zero.
const WIDE: f64 = 0.9;

impl Estimate {
    /// A figure that is known exactly.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self {
            estimate: value,
            low: value,
            high: value,
        }
    }

    /// Whether the interval is so wide that its ends say more than the estimate.
    pub(crate) fn is_wide(&self) -> bool {
        let distance = (self.high - self.estimate).max(self.estimate - self.low);
        distance > WIDE * self.estimate
    }

    /// Bytes with the larger distance to an end of the interval: `12.5 MiB ±14%`; the ends alone if the interval is
    /// too wide for that.
    #[must_use]
    pub fn with_error(&self) -> String {
        if self.is_wide() {
            return text::wide_range(self.low, self.high);
        }
        format!("{} ±{}", text::bytes(self.estimate), self.relative_error())
    }

    /// The larger distance from the estimate to an end of its interval, in percent of the estimate.
    pub(crate) fn relative_error(&self) -> String {
        let distance = (self.high - self.estimate).max(self.estimate - self.low);
        let percent = 100.0 * distance / self.estimate;
        if percent > 999.0 {
            ">999%".to_owned()
        } else if !(0.05..9.95).contains(&percent) {
            format!("{percent:.0}%")
        } else {
            format!("{percent:.1}%")
        }
    }
}

/// Sums over samples of one quantity (bytes or allocations). An [`Estimate`] is computed from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// The Horvitz-Thompson estimate.
    pub estimate: f64,
    /// The sampled objects alone, without weights.
    pub seen: f64,
    /// Its variance.
    pub variance: f64,
    /// The third central moment.
    pub third: f64,
}

impl Moments {
    /// The moments of one sample: its value, its weight, and the probability that it was sampled.
    pub(crate) fn of_sample(value: f64, weighted: f64, p: f64) -> Self {
        let q = 1.0 - p;
        Self {
            estimate: weighted,
            seen: value,
            variance: weighted * weighted * q,
            third: weighted * weighted * weighted * q * (2.0 - p),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.estimate += other.estimate;
        self.seen += other.seen;
        self.variance += other.variance;
        self.third += other.third;
    }

    pub(crate) fn cumulants(&self) -> Cumulants {
        Cumulants {
            mean: self.estimate,
            variance: self.variance,
            third: self.third,
        }
    }

    /// `heaviest`: the largest weight that a sample of this quantity could have had.
    pub(crate) fn interval(&self, heaviest: f64) -> Estimate {
        let (low, high) = self.cumulants().limits(heaviest);
        Estimate {
            estimate: self.estimate,
            low: low.max(self.seen).min(self.estimate),
            high: high.max(self.estimate),
        }
    }
}

/// The allocations that a sample stands for, averaged over all allocations (not over samples: most of those are of large
/// objects, while most allocations are of small ones, of which a row may have been missed). `heaviest`: the bytes that a sample
/// could have stood for.
pub(crate) fn typical_allocations(all: &Totals, heaviest: f64) -> f64 {
    let bytes = all.bytes.cumulants().weight();
    if bytes > 0.0 {
        let weight = all.allocations.variance / all.allocations.estimate;
        weight * (heaviest / bytes).max(1.0)
    } else {
        heaviest / 64.0
    }
}

/// The most allocations that a sample could have stood for if it was of a size that the samples have; 0 without samples that
/// leave something unknown. `heaviest`: the bytes that a sample could have stood for.
pub(crate) fn heaviest_allocations(bytes: &Moments, allocations: &Moments, heaviest: f64) -> f64 {
    let (bytes, allocations) = (bytes.cumulants().weight(), allocations.cumulants().weight());
    if bytes > 0.0 {
        allocations * (heaviest / bytes).max(1.0)
    } else {
        0.0
    }
}

/// Sums over a set of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Number of samples.
    pub samples: u64,
    /// Their bytes.
    pub bytes: Moments,
    /// The allocations they stand for.
    pub allocations: Moments,
}

impl Totals {
    /// The totals of one sample of a profile, with the period that its source had at that time.
    #[must_use]
    pub fn of_sample(profile: &Profile, shape: Shape) -> Self {
        Self::of(&profile.sampling(shape.sampling), shape)
    }

    /// The totals of one sample of each shape, by the number of the shape.
    pub(crate) fn of_shapes(profile: &Profile) -> Vec<Self> {
        let shapes = profile.samples.shapes().iter();
        shapes
            .map(|&shape| Self::of_sample(profile, shape))
            .collect()
    }

    /// The sum over all samples. `shapes`: the totals of each shape.
    pub(crate) fn of_all(profile: &Profile, shapes: &[Self]) -> Self {
        let mut all = Self::default();
        for id in profile.samples.ids() {
            all.add(&shapes[profile.samples.shape_id(id).0 as usize]);
        }
        all
    }

    /// The totals of one sample, with a sampling that may be another than its shape's.
    pub(crate) fn of(sampling: &Sampling, shape: Shape) -> Self {
        let weight = sampling.weight(&shape);
        let (bytes, allocations) = match sampling.distances {
            Distances::Every | Distances::Exponential => (
                Moments::of_sample(shape.size as f64, weight.bytes, weight.probability),
                Moments::of_sample(1.0, weight.allocations, weight.probability),
            ),
            Distances::Fixed => {
                let period = sampling.period.max(1) as f64;
                fixed(period, sampling.taken(), shape, weight)
            }
        };
        Self {
            samples: 1,
            bytes,
            allocations,
        }
    }

    /// Adds the totals of other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.bytes.add(&other.bytes);
        self.allocations.add(&other.allocations);
    }
}

/// With fixed distances, a block contains `floor(block / period)` sample points; with the
/// probability of the remaining fraction, it contains one more. `taken`: see [`Sampling::taken`].
fn fixed(period: f64, taken: f64, shape: Shape, weight: Weight) -> (Moments, Moments) {
    let block = shape.block.max(1) as f64;
    let moments = |value: f64, unit: f64| {
        if block < period {
            let p = weight.probability;
            let mut moments = Moments::of_sample(unit * p, unit, p);
            moments.estimate = value;
            return moments;
        }
        let part = (block / period).fract();
        let lost = Moments::of_sample(value / taken, value, 1.0 / taken);
        Moments {
            estimate: value,
            seen: (value / taken).min(unit / taken * (block / period).floor()),
            variance: lost.variance + unit * unit * part * (1.0 - part),
            third: lost.third,
        }
    };
    (
        moments(weight.bytes, period * taken),
        moments(weight.allocations, period * taken / block),
    )
}

/// Turns sums over samples of one profile into estimates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimator {
    exact: bool,
    /// The heaviest weight of a sample of small objects: the longest period.
    heaviest: f64,
    /// The allocations that a sample stands for under the longest period: see [`typical_allocations`].
    typical_allocations: f64,
}

impl Estimator {
    /// `all`: the sums over all samples of the profile.
    #[must_use]
    pub fn new(profile: &Profile, all: &Totals) -> Self {
        // With several sources or periods, the one that most easily misses objects counts.
        let period = periods::longest(profile);
        Self {
            exact: profile.is_exact(),
            heaviest: period,
            typical_allocations: typical_allocations(all, period),
        }
    }

    /// The estimator for sums over one half of the samples: each stands for twice as much.
    #[must_use]
    pub(crate) fn of_half(&self) -> Self {
        Self {
            heaviest: 2.0 * self.heaviest,
            typical_allocations: 2.0 * self.typical_allocations,
            ..*self
        }
    }

    /// Estimated bytes.
    #[must_use]
    pub fn bytes(&self, totals: &Totals) -> Estimate {
        self.of_bytes(&totals.bytes)
    }

    /// Estimated bytes, from their sums alone.
    pub(crate) fn of_bytes(&self, bytes: &Moments) -> Estimate {
        self.estimate(bytes, self.heaviest)
    }

    /// Estimated number of allocations.
    #[must_use]
    pub fn allocations(&self, totals: &Totals) -> Estimate {
        self.estimate(&totals.allocations, self.heaviest_allocations(totals))
    }

    /// The most allocations that a sample of these could have stood for.
    #[must_use]
    pub fn heaviest_allocations(&self, totals: &Totals) -> f64 {
        let of_row = heaviest_allocations(&totals.bytes, &totals.allocations, self.heaviest);
        of_row.max(self.typical_allocations)
    }

    fn estimate(&self, moments: &Moments, heaviest: f64) -> Estimate {
        if self.exact {
            Estimate::exact(moments.estimate)
        } else {
            moments.interval(heaviest)
        }
    }
}
