//! What a sample stands for.

use crate::{Distances, Period, logarithm::one_minus_exp};

/// The probability that an allocation of `size` bytes is sampled when distances are exponential:
/// 1 - exp(-size/period); 1 if the period is [`Period::EVERY`] and the size is not 0.
#[must_use]
#[allow(clippy::cast_precision_loss)] // sizes above 2^53 round, and their probability is 1
pub const fn probability(size: u64, period: Period) -> f64 {
    if period.bytes() == 1 && size > 0 {
        return 1.0;
    }
    one_minus_exp(size as f64 / period.bytes() as f64)
}

/// The number of allocated bytes that a sampled allocation stands for, such that the sum over the
/// samples has the number of allocated bytes as its expectation.
///
/// Exponential distances: size/(1 - exp(-size/period)) (Horvitz and Thompson's estimator). Fixed
/// distances: the period, once for each of the `points` that the allocation covers. A period of
/// [`Period::EVERY`]: the size itself.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub const fn weight(size: u64, points: u32, period: Period, distances: Distances) -> f64 {
    if period.bytes() == 1 {
        return size as f64;
    }
    match distances {
        Distances::Fixed => points as f64 * period.bytes() as f64,
        Distances::Exponential => {
            let x = size as f64 / period.bytes() as f64;
            if x < SMALL {
                period.bytes() as f64 * small_weight(x)
            } else {
                size as f64 / probability(size, period)
            }
        }
    }
}

/// Up to here [`small_weight`] is exact to the last bit or two.
const SMALL: f64 = 1.0 / 16.0;

/// x/(1 - exp(-x)) for `x` from 0 to [`SMALL`], in a handful of multiplications: most objects are small, and a weight may
/// be asked for at each sample. The series of Bernoulli's numbers; the first term left out is x⁸/1209600.
const fn small_weight(x: f64) -> f64 {
    let square = x * x;
    let fourth = 1.0 - square * (1.0 / 42.0);
    let third = 1.0 - square * (1.0 / 60.0) * fourth;
    1.0 + x * 0.5 + square * (1.0 / 12.0) * third
}

#[cfg(test)]
mod tests {
    use super::{SMALL, probability, small_weight, weight};
    use crate::{Distances, Period, logarithm::one_minus_exp};

    #[test]
    fn small_objects_stand_for_a_period_and_huge_ones_for_themselves() {
        let period = Period::new(524_288).unwrap();
        let of = |size| weight(size, 1, period, Distances::Exponential);
        // s/(1-exp(-s/n)) = n + s/2 + …
        assert!((of(16) - (524_288.0 + 8.0)).abs() < 1e-3);
        assert!((of(0) - 524_288.0).abs() < 1e-9);
        assert_eq!(of(1 << 40), (1u64 << 40) as f64);
        assert_eq!(weight(10_000, 3, period, Distances::Fixed), 3.0 * 524_288.0);
        assert_eq!(weight(48, 48, Period::EVERY, Distances::Fixed), 48.0);
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
    fn probability_is_that_of_the_distribution() {
        let period = Period::new(64).unwrap();
        assert!((probability(64, period) - 0.632_120_558_828_557_7).abs() < 1e-15);
        assert_eq!(probability(0, period), 0.0);
        assert_eq!(probability(1, Period::EVERY), 1.0);
        assert_eq!(probability(u64::MAX, period), 1.0);
    }
}
