//! What a sample stands for.

use crate::{Distances, logarithm::one_minus_exp};

/// What one sampled allocation stands for, such that the sums over the samples have the true numbers of allocations and
/// bytes as their expectation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The probability that an allocation of this size is sampled.
    pub probability: f64,
    /// How many allocations the sample stands for.
    pub allocations: f64,
    /// How many bytes the sample stands for.
    pub bytes: f64,
}

impl Weight {
    /// The weight of a sample: `size` bytes were requested, and the allocator counted `block` bytes, of which `points` are
    /// sample points. A `period` or a `block` of 0 counts as 1; so values from a damaged file do no harm.
    ///
    /// - Exponential distances: the Horvitz-Thompson estimator with the probability 1 - exp(-block/period).
    /// - Fixed distances: `points` times the period (section 3.2 of "Low Overhead Allocation Sampling in a Garbage
    ///   Collected Virtual Machine").
    /// - Every byte, or exponential distances with a period of 1: the allocation itself.
    // Always: an agent computes one with each sample, in code whose pages stay; a copy of its own would lie elsewhere.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // sizes above 2^53 round
    pub const fn of(distances: Distances, period: u64, size: u64, block: u64, points: u32) -> Self {
        let size = size as f64;
        let block = if block == 0 { 1.0 } else { block as f64 };
        let period = if period == 0 { 1.0 } else { period as f64 };
        let distances = match distances {
            Distances::Exponential if period == 1.0 => Distances::Every,
            distances => distances,
        };
        match distances {
            Distances::Every => Self {
                probability: 1.0,
                allocations: 1.0,
                bytes: size,
            },
            Distances::Exponential => {
                let x = block / period;
                let probability = if x < SMALL {
                    x / small_weight(x)
                } else {
                    one_minus_exp(x)
                };
                Self {
                    probability,
                    allocations: 1.0 / probability,
                    bytes: size / probability,
                }
            }
            Distances::Fixed => {
                let bytes = points as f64 * period;
                let probability = block / period;
                Self {
                    probability: if probability < 1.0 { probability } else { 1.0 },
                    allocations: bytes / block,
                    bytes,
                }
            }
        }
    }
}

/// Below this, [`small_weight`] is exact to the last two bits.
const SMALL: f64 = 1.0 / 16.0;

/// x/(1 - exp(-x)) for `x` from 0 to [`SMALL`], in a few multiplications: most objects are small, and an agent computes a
/// weight with each sample. It is the series with Bernoulli's numbers; the first term left out is x⁸/1209600.
const fn small_weight(x: f64) -> f64 {
    let square = x * x;
    let fourth = 1.0 - square * (1.0 / 42.0);
    let third = 1.0 - square * (1.0 / 60.0) * fourth;
    1.0 + x * 0.5 + square * (1.0 / 12.0) * third
}

#[cfg(test)]
mod tests {
    use super::{SMALL, Weight, small_weight};
    use crate::{Distances, Period, logarithm::one_minus_exp};

    #[test]
    fn small_objects_stand_for_a_period_and_huge_ones_for_themselves() {
        let of = |size| Weight::of(Distances::Exponential, 524_288, size, size, 1).bytes;
        // s/(1-exp(-s/n)) = n + s/2 + …
        assert!((of(16) - (524_288.0 + 8.0)).abs() < 1e-3);
        assert!((of(1) - 524_288.5).abs() < 1e-3);
        assert_eq!(of(1 << 40), (1u64 << 40) as f64);
    }

    #[test]
    fn fixed_distances_count_points() {
        let weight = Weight::of(Distances::Fixed, 524_288, 9_000, 10_000, 3);
        assert_eq!(weight.bytes, 3.0 * 524_288.0);
        assert_eq!(weight.allocations, 157.2864);
        assert_eq!(weight.probability, 10_000.0 / 524_288.0);
        let larger = Weight::of(Distances::Fixed, 64, 1000, 1008, 16);
        assert_eq!(larger.probability, 1.0);
    }

    #[test]
    fn every_allocation_stands_for_itself() {
        let weight = Weight::of(Distances::Every, 1, 40, 48, 48);
        assert_eq!((weight.allocations, weight.bytes), (1.0, 40.0));
        assert_eq!(weight.probability, 1.0);
        assert_eq!(Weight::of(Distances::Exponential, 1, 40, 48, 1), weight);
    }

    /// The bytes that were requested count, the bytes that were set aside decide about samples.
    #[test]
    fn the_block_gives_the_probability() {
        let weight = Weight::of(Distances::Exponential, 64, 50, 64, 1);
        let probability = 0.632_120_558_828_557_7;
        assert!((weight.probability - probability).abs() < 1e-15);
        assert!((weight.bytes - 50.0 / probability).abs() < 1e-12);
        assert!((weight.allocations - 1.0 / probability).abs() < 1e-14);
    }

    #[test]
    fn both_ways_to_a_weight_agree() {
        for step in 1..=1000 {
            let x = SMALL * f64::from(step) / 1000.0;
            let (one, other) = (small_weight(x), x / one_minus_exp(x));
            assert!((one / other - 1.0).abs() < 1e-14, "{x}: {one} {other}");
        }
        assert_eq!(small_weight(0.0), 1.0);
    }

    #[test]
    fn numbers_of_a_damaged_file_are_harmless() {
        for distances in [Distances::Exponential, Distances::Fixed, Distances::Every] {
            for number in [0, 1, Period::MAX, u64::MAX] {
                let weight = Weight::of(distances, number, u64::MAX - number, number, u32::MAX);
                assert!((0.0..=1.0).contains(&weight.probability));
                assert!(weight.bytes.is_finite() && weight.allocations.is_finite());
                let weight = Weight::of(distances, u64::MAX, number, 0, 0);
                assert!(weight.bytes.is_finite() && weight.allocations.is_finite());
            }
        }
    }
}
