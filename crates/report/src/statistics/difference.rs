//! What a difference of two estimates is worth.
//!
//! Each side is a sum over samples ([`Moments`]), or the mean of such sums over several runs. A side is as uncertain as a
//! Poisson count, beside bytes that are certain (see [`crate::interval`]). What a side may have missed are samples of the
//! heaviest weight that they could have had: the weight of the longest period, or if that is more the one that the samples
//! of both sides have together, in proportion to their periods: a kind of object that one side saw may have gone unseen on
//! the other.
//!
//! A count of which `k` were seen has a mean that is distributed, as far as the count tells, between
//! Gamma(k) and Gamma(k + 1): these give Garwood's exact limits ("Fiducial limits for the Poisson distribution",
//! Biometrika 28, 1936). The one sample more is of the heaviest weight. The difference of the two sides is then a difference of two
//! gamma variables, each scaled and shifted, whose distribution is [`GammaDifference`].
//!
//! - *The test* takes Gamma(k) for the larger side and Gamma(k + 1) for the smaller one. If both have the same period and
//!   nothing is certain, this is the conditional binomial test of two Poisson means (Przyborowski and Wilenski,
//!   "Homogeneity of results in testing samples from Poisson series", Biometrika 31, 1940) with its exact
//!   probability: by chance, what it gives is below `p` in at most a part `p` of all cases, however few samples there
//!   are. This is what the control of the false discovery rate needs.
//! - *The interval* of the difference takes Gamma(k + 1/2) for both (Krishnamoorthy and Lee, "Inference for functions of parameters
//!   in discrete distributions based on fiducial approach", Journal of Statistical Planning and Inference 140, 2010). It
//!   holds in 95 of 100 cases on average, where one from the exact test would hold too often. So it may exclude 0 where
//!   the test has not passed, by a little.
//! - *The interval of a side* is the interval of its figure in any other report.
//!
//! With several runs on a side, their [`Spread`] is added to the variance, and the factor by which
//! the deviation grows widens the interval; the probability is the larger of the counts' and Student's t's.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::erf::erfc;

use super::spread::Spread;
use super::tail::GammaDifference;
use crate::estimate::{Estimate, Moments};
use crate::interval::{Cumulants, Gamma, TAIL, Z};

/// One side of a comparison: the mean over its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Sums over samples, averaged over the runs.
    pub mean: Moments,
    /// How many runs.
    pub runs: u32,
    /// What the weight of a sample is in proportion to: the period, divided by the number of runs.
    pub unit: f64,
    /// The heaviest weight of a sample: what it stands for where there are none.
    pub typical: f64,
    /// Whether everything was recorded.
    pub exact: bool,
}

impl Side {
    /// The same if everything were `factor` times as large.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            mean: self.moments(factor, factor.powi(2), factor.powi(3)),
            unit: self.unit * factor,
            typical: self.typical * factor,
            ..*self
        }
    }

    /// The same if the number of objects were `factor` times as large.
    #[must_use]
    pub fn grown(&self, factor: f64) -> Self {
        Self {
            mean: self.moments(factor, factor, factor),
            ..*self
        }
    }

    /// Its moments: the sums and the two central moments, each so many times as large.
    fn moments(&self, sums: f64, variance: f64, third: f64) -> Moments {
        Moments {
            estimate: self.mean.estimate * sums,
            seen: self.mean.seen * sums,
            variance: self.mean.variance * variance,
            third: self.mean.third * third,
        }
    }

    /// The same if there were `factor` times as many samples: by as many runs, or by a shorter period.
    #[must_use]
    pub fn finer(&self, factor: f64) -> Self {
        Self {
            mean: Moments {
                variance: self.mean.variance / factor,
                third: self.mean.third / factor.powi(2),
                ..self.mean
            },
            unit: self.unit / factor,
            typical: self.typical / factor,
            ..*self
        }
    }

    /// The same with another unit.
    #[must_use]
    pub fn under(&self, unit: f64) -> Self {
        self.finer(self.unit / unit)
    }
}

/// What two sides say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The old side.
    pub old: Estimate,
    /// The new side.
    pub new: Estimate,
    /// New less old.
    pub difference: Estimate,
    /// The probability of a difference as large, either way, if the two sides were the same.
    pub p: f64,
    /// The least that `p` could have been with as many samples.
    pub least: f64,
}

/// Compares two sides. `spread`: how much the runs of a side differ, if there are several.
#[must_use]
pub fn compare(old: &Side, new: &Side, spread: Option<&Spread>) -> Difference {
    let (old_weight, new_weight) = weights(old, new);
    let (old_part, new_part) = (Part::of(old, old_weight), Part::of(new, new_weight));
    let distance = new.mean.estimate - old.mean.estimate;
    let runs = |side: &Side| 1.0 / f64::from(side.runs.max(1));
    let between = |shares: f64| spread.map_or(0.0, |spread| spread.between * shares);
    let widen = |variance: f64, shares: f64| Widening::of(variance, between(shares), spread);

    let difference = |shares: f64| {
        let (up, down) = (new_part.with(0.5), old_part.with(0.5));
        let of = less(&up, &down);
        widen(up.variance + down.variance, shares).apply(Estimate {
            estimate: distance,
            low: of.quantile(TAIL).min(distance),
            high: of.quantile(1.0 - TAIL).max(distance),
        })
    };
    let alone = |side: &Side, part: &Part| {
        let known = side.runs <= 1;
        if known && side.exact {
            return Estimate::exact(side.mean.estimate);
        }
        // What was seen of several runs is no bound for their mean.
        let least = if known { side.mean.seen } else { 0.0 };
        let mean = Moments {
            seen: least,
            ..side.mean
        };
        let found = mean.interval(if side.exact { 0.0 } else { side.typical });
        let mut found = widen(part.with(0.5).variance, runs(side)).apply(found);
        found.low = found.low.max(least).min(found.estimate);
        found
    };
    let shares = runs(old) + runs(new);
    let (p, least) = probability(&old_part, &new_part, distance);
    let variance = old_part.seen.variance + new_part.seen.variance;
    let by_spread = widen(variance, shares).probability(distance);
    Difference {
        old: alone(old, &old_part),
        new: alone(new, &new_part),
        difference: difference(shares),
        p: p.max(by_spread),
        least,
    }
}

/// The weights of a sample of either side, if the samples of both sides have the same in proportion to their periods.
fn weights(old: &Side, new: &Side) -> (f64, f64) {
    let ratio = new.unit / old.unit;
    let variance = old.mean.variance + new.mean.variance;
    if variance <= 0.0 {
        return (0.0, 0.0);
    }
    let third = old.mean.third + new.mean.third / ratio;
    let weight = third / (2.0 * variance);
    (weight, weight * ratio)
}

/// A side, and what it may have missed.
#[derive(Clone, Copy, Debug)]
struct Part {
    seen: Cumulants,
    /// The heaviest weight of a sample; 0 if nothing can have been missed.
    heaviest: f64,
}

impl Part {
    /// `weight`: of a sample, by what both sides saw.
    fn of(side: &Side, weight: f64) -> Self {
        let heaviest = if side.exact {
            0.0
        } else {
            side.typical.max(weight)
        };
        Self {
            seen: side.mean.cumulants(),
            heaviest,
        }
    }

    /// With so much of one more sample.
    fn with(&self, part: f64) -> Cumulants {
        self.seen.with(part, self.heaviest)
    }
}

/// The distribution of one side less another one.
fn less(up: &Cumulants, down: &Cumulants) -> GammaDifference {
    let (up, down) = (Gamma::of(up), Gamma::of(down));
    GammaDifference {
        shift: up.certain - down.certain,
        up_shape: up.count,
        up_scale: up.weight,
        down_shape: down.count,
        down_scale: down.weight,
    }
}

/// The probability of a difference as large by chance, and the least that it could have been.
fn probability(old: &Part, new: &Part, distance: f64) -> (f64, f64) {
    if distance == 0.0 {
        return (1.0, 0.0);
    }
    let (larger, smaller) = if distance > 0.0 {
        (new, old)
    } else {
        (old, new)
    };
    let p = 2.0 * less(&larger.seen, &smaller.with(1.0)).below(0.0);
    let (old_seen, new_seen) = (Gamma::of(&old.seen), Gamma::of(&new.seen));
    let mostly_certain = |gamma: &Gamma, of: &Part| gamma.certain > of.heaviest;
    let one_exact = old.heaviest == 0.0 || new.heaviest == 0.0;
    let least = if one_exact || mostly_certain(&old_seen, old) || mostly_certain(&new_seen, new) {
        0.0
    } else {
        // All samples on the side where this is least likely.
        let share = old.heaviest.min(new.heaviest) / (old.heaviest + new.heaviest);
        2.0 * share.powf(old_seen.count + new_seen.count)
    };
    (p.min(1.0), least.min(1.0))
}

/// By how much the spread between runs widens an interval.
struct Widening {
    /// By sampling alone.
    sampling: f64,
    /// By sampling, and by what differs from run to run.
    total: f64,
    /// Of Student's t; `None` if there is one run only.
    degrees: Option<f64>,
}

impl Widening {
    fn of(variance: f64, between: f64, spread: Option<&Spread>) -> Self {
        Self {
            sampling: variance.sqrt(),
            total: (variance + between).sqrt(),
            degrees: spread.map(|spread| spread.degrees),
        }
    }

    fn apply(&self, found: Estimate) -> Estimate {
        let Some(degrees) = self.degrees else {
            return found;
        };
        let (below, above) = (found.estimate - found.low, found.high - found.estimate);
        let half = student_quantile(degrees) * self.total;
        let (below, above) = if self.sampling > 0.0 {
            let factor = (half / (Z * self.sampling)).max(1.0);
            (below * factor, above * factor)
        } else {
            (half, half)
        };
        Estimate {
            estimate: found.estimate,
            low: found.estimate - below,
            high: found.estimate + above,
        }
    }

    /// The probability of a difference as large if there is none; 0 if there is one run only.
    fn probability(&self, distance: f64) -> f64 {
        match self.degrees {
            Some(degrees) if self.total > 0.0 => student_tail(degrees, distance.abs() / self.total),
            _ => 0.0,
        }
    }
}

/// Above so many degrees of freedom Student's t is the normal distribution.
const MANY: f64 = 1e6;

/// The 97.5 % point.
fn student_quantile(degrees: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, degrees) {
        Ok(student) if degrees < MANY => student.inverse_cdf(1.0 - TAIL),
        _ => Z,
    }
}

/// The probability of a value further from 0.
fn student_tail(degrees: f64, value: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, degrees) {
        Ok(student) if degrees < MANY => 2.0 * student.cdf(-value),
        _ => erfc(value / std::f64::consts::SQRT_2),
    }
}
