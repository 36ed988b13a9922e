//! The 95 % limits of a sum of weighted counts, of which some weights may not have been drawn.
//!
//! A row is a sum over samples, and each stands for its weight. If all weights are equal, the sum is a Poisson count, and
//! its limits are the mid-P limits of the count (Lancaster, "Significance tests in discrete distributions", JASA 56, 1961;
//! recommended by Cohen and Yang, "Mid-p confidence intervals for the Poisson expectation", Statistics in Medicine 13,
//! 1994): half of the probability of what was seen counts. With few samples, a normal interval contains the true value too
//! rarely, and Garwood's "exact" interval contains it too often.
//!
//! If weights differ, the samples of a row say nothing of memory that was allocated while weights were heavy and that
//! no sample hit. So the upper limit allows for one more sample *of the heaviest weight that could have been drawn*, as
//! Fay and Feuer's gamma limits do ("Confidence intervals for directly standardized rates: a method based on the gamma
//! distribution", Statistics in Medicine 16, 1997). Fay and Kim's mid-P form of them is used ("Confidence intervals for
//! directly standardized rates using mid-p gamma intervals", Biometrical Journal 59, 2017): both limits are quantiles of
//! an even mixture of the distribution of what was seen, and of that with one more sample of the heaviest weight. With equal
//! weights, these are the mid-P limits of the count. With one weight much heavier than the weights of the samples, the upper limit is
//! passed rarely, and the lower one in up to 5 of 100 cases: both sides together keep their 5.
//!
//! A distribution is taken for a shifted gamma distribution with the same first three moments: for equal weights, that is exact.

use statrs::function::erf::erfc;
use statrs::function::gamma::{gamma_lr, gamma_ur};

use crate::crossing::crossing;

/// The probability outside the interval, on each side.
pub(crate) const TAIL: f64 = 0.025;

/// The 97.5 % point of the normal distribution.
pub(crate) const Z: f64 = 1.959_963_984_540_054;

/// Above this count, an approximation is better than 1e-4 of the interval's width, and faster.
const MANY: f64 = 200.0;

/// Below this count there is nothing.
const NONE: f64 = 1e-9;

/// The precision of a limit, as a part of where it may lie.
const PRECISION: f64 = 1e-12;

/// Mean, variance and third central moment of what a row may be, as far as its samples tell: sums over independent parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cumulants {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) third: f64,
}

impl Cumulants {
    /// The same with one more sample of this weight, or with so much of one.
    pub(crate) fn with(&self, part: f64, weight: f64) -> Self {
        Self {
            mean: self.mean + part * weight,
            variance: self.variance + part * weight * weight,
            third: self.third + 2.0 * part * weight * weight * weight,
        }
    }

    /// The weight that the samples have if all have the same; 0 without samples.
    pub(crate) fn weight(&self) -> f64 {
        if self.variance <= 0.0 {
            return 0.0;
        }
        // A small weight, as where third moments vanish, means a normal distribution; then so small is small enough.
        (self.third / (2.0 * self.variance)).max(1e-3 * self.variance.sqrt())
    }

    /// The 95 % limits. `heaviest`: the largest weight that a sample of the row could have had.
    pub(crate) fn limits(&self, heaviest: f64) -> (f64, f64) {
        let seen = Gamma::of(self);
        if heaviest <= seen.weight {
            return (
                seen.certain + seen.weight * poisson_low(seen.count),
                seen.certain + seen.weight * poisson_high(seen.count),
            );
        }
        let more = Gamma::of(&self.with(1.0, heaviest));
        let above = |x: f64| f64::midpoint(seen.above(x), more.above(x));
        let least = seen.certain.min(more.certain);
        let most = self.mean + 12.0 * heaviest + 10.0 * self.variance.sqrt();
        let low = falls_to(1.0 - TAIL, least, self.mean, above);
        let high = falls_to(TAIL, self.mean, most, above);
        // A row with samples may be no smaller than one without. The rest is an approximation, this is not.
        (low, high.max(heaviest * poisson_high(0.0)))
    }
}

/// `certain + weight * Gamma(count)`: so many samples of such a weight, and the certain bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gamma {
    pub(crate) certain: f64,
    pub(crate) count: f64,
    pub(crate) weight: f64,
}

impl Gamma {
    pub(crate) fn of(cumulants: &Cumulants) -> Self {
        let weight = cumulants.weight();
        let count = if weight > 0.0 {
            cumulants.variance / (weight * weight)
        } else {
            0.0
        };
        Self {
            certain: cumulants.mean - count * weight,
            count,
            weight,
        }
    }

    /// The probability of a value above `x`.
    fn above(&self, x: f64) -> f64 {
        let distance = x - self.certain;
        if distance <= 0.0 {
            1.0
        } else if self.count < NONE {
            0.0
        } else {
            gamma_above(self.count, distance / self.weight)
        }
    }
}

fn gamma_above(shape: f64, x: f64) -> f64 {
    if shape > MANY {
        // Wilson and Hilferty's cube root.
        let root = (x / shape).cbrt() - 1.0 + 1.0 / (9.0 * shape);
        return 0.5 * erfc(root * 3.0 * shape.sqrt() / std::f64::consts::SQRT_2);
    }
    gamma_ur(shape, x)
}

/// The lower mid-P limit of the mean of a Poisson distribution, given the observed `count`; extended to counts that
/// are not integers.
fn poisson_low(count: f64) -> f64 {
    if count > MANY {
        return many(count, -Z);
    }
    if count <= NONE {
        return 0.0;
    }
    let below = |mean| f64::midpoint(gamma_lr(count, mean), gamma_lr(count + 1.0, mean));
    // No function of statrs takes 0.
    let least = f64::MIN_POSITIVE;
    crossing(least, count, PRECISION * count, |mean| below(mean) - TAIL)
}

/// The upper one.
fn poisson_high(count: f64) -> f64 {
    if count > MANY {
        return many(count, Z);
    }
    if count <= NONE {
        // Half of the probability of no sample is e^-mean / 2.
        return -(2.0 * TAIL).ln();
    }
    let above = |mean| f64::midpoint(gamma_ur(count, mean), gamma_ur(count + 1.0, mean));
    let most = count + 10.0 + 6.0 * count.sqrt();
    falls_to(TAIL, count, most, above)
}

/// Mid-P is the mean of two gamma distributions, of shapes `count` and `count + 1`; a shape halfway between them
/// approximates it.
fn many(count: f64, z: f64) -> f64 {
    let shape = count + 0.5;
    let cube = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * shape.sqrt());
    shape * cube * cube * cube
}

/// The point at which a falling function falls to `value`.
fn falls_to(value: f64, low: f64, high: f64, function: impl Fn(f64) -> f64) -> f64 {
    crossing(low, high, PRECISION * (high - low), |x| value - function(x))
}

#[cfg(test)]
mod tests;
