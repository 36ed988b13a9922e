//! How much runs of the same program differ by more than sampling.
//!
//! A random-effects model: a run's estimate of a row has the variance of sampling, which is known, and a variance between
//! runs, which is not. Both sides are taken to have the same. Three runs a side leave four degrees of freedom a
//! row, which is so little that nothing could ever be significant among hundreds of rows. But there *are* hundreds of rows. So the
//! rows are taken together by Smyth's empirical Bayes method ("Linear models and empirical Bayes methods for assessing differential
//! expression in microarray experiments", Statistical Applications in Genetics and Molecular Biology 3, 2004): the
//! variances of rows scatter around a typical one, and how much they scatter says what a typical one is worth, in degrees of
//! freedom. Typical of a row is its variance of sampling and, between runs, a variance in proportion to the square of its
//! size: the same relative deviation for all.
//!
//! The variance of a row is never taken to be less than sampling's.

use statrs::function::gamma::digamma;

/// What the runs say of a row, for one quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scatter {
    /// Variance of the runs around the means of their sides.
    pub observed: f64,
    /// The variance of one run by sampling: mean over all runs.
    pub sampling: f64,
    /// Mean of all runs.
    pub size: f64,
}

/// How much the runs of a side differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The variance between runs, of one run, beside sampling's.
    pub between: f64,
    /// The degrees of freedom with which the whole variance is known.
    pub degrees: f64,
}

/// The typical variance of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// Variance between runs, for a row of size 1.
    relative: f64,
    /// How much this is worth: 0 is nothing, infinity is that all rows are so.
    degrees: f64,
}

/// A row with fewer samples over all runs than this says nothing of the spread: it is a matter of single samples.
const FEWEST: f64 = 10.0;

/// Fewer rows than this have nothing in common that could be known.
const FEWEST_ROWS: usize = 10;

impl Prior {
    /// `degrees`: the degrees of freedom of each row, which are two fewer than the runs. `runs`: their number.
    #[must_use]
    pub fn of(rows: &[Scatter], degrees: f64, runs: f64) -> Self {
        let nothing = Self {
            relative: 0.0,
            degrees: 0.0,
        };
        let told = |row: &&Scatter| {
            row.observed > 0.0
                && row.size > 0.0
                && row.size * row.size * runs >= FEWEST * row.sampling
        };
        let rows: Vec<Scatter> = rows.iter().filter(told).copied().collect();
        if rows.len() < FEWEST_ROWS || degrees < 1.0 {
            return nothing;
        }
        let fit = |relative: f64| fit(&rows, degrees, relative);
        // The scale falls as the relative variance grows: it is 1 where that is right.
        let largest = rows.iter().map(|row| row.observed / (row.size * row.size));
        let (mut low, mut high) = (0.0, largest.fold(f64::MIN_POSITIVE, f64::max));
        if rows.iter().all(|row| row.sampling > 0.0) && fit(0.0).0 <= 1.0 {
            high = 0.0;
        }
        let mut step = high;
        // In proportion, for a relative variance may be 1e-12.
        for _ in 0..200 {
            step *= 0.8;
            if high > low && fit(step).0 >= 1.0 {
                low = step;
                high = step / 0.8;
                break;
            }
            if step < 1e-30 {
                break;
            }
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if fit(middle).0 > 1.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        Self {
            relative: high,
            degrees: fit(high).1,
        }
    }

    /// The spread of a row with so many degrees of freedom of its own.
    #[must_use]
    pub fn spread(&self, row: &Scatter, degrees: f64) -> Spread {
        let typical = row.sampling + self.relative * row.size * row.size;
        let variance = if self.degrees.is_infinite() {
            typical
        } else {
            (self.degrees * typical + degrees * row.observed) / (self.degrees + degrees)
        };
        Spread {
            between: (variance - row.sampling).max(0.0),
            degrees: self.degrees + degrees,
        }
    }
}

/// Scale and degrees of freedom of the prior (Smyth 2004, section 6.2), where the typical variance between runs is this.
fn fit(rows: &[Scatter], degrees: f64, relative: f64) -> (f64, f64) {
    let half = degrees / 2.0;
    let logs = rows.iter().map(|row| {
        let typical = row.sampling + relative * row.size * row.size;
        (row.observed / typical.max(f64::MIN_POSITIVE)).ln() - digamma(half) + half.ln()
    });
    let logs: Vec<f64> = logs.collect();
    let number = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / number;
    let scatter = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (number - 1.0);
    let more = scatter - trigamma(half);
    if more <= 0.0 {
        return (mean.exp(), f64::INFINITY);
    }
    let prior = inverse_trigamma(more);
    ((mean + digamma(prior) - prior.ln()).exp(), 2.0 * prior)
}

/// The second derivative of the logarithm of the gamma function (Abramowitz and Stegun, 6.4.6 and 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = 1.0 / 6.0 - square * (1.0 / 30.0 - square * (1.0 / 42.0 - square / 30.0));
    sum + 1.0 / x + square / 2.0 + square / x * series
}

fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6_f64, 1e8_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{ChiSquared, Distribution};

    const DEGREES: f64 = 4.0;

    /// Rows of many sizes whose runs differ by this relative variance beside sampling; `prior`: degrees of freedom
    /// with which rows scatter around it, if they do.
    fn rows(relative: f64, prior: Option<f64>) -> Vec<Scatter> {
        let mut random = StdRng::seed_from_u64(5);
        let chi = ChiSquared::new(DEGREES).expect("positive");
        let of = |at: i32| {
            let size = f64::from(20 + at * 10);
            let typical = size + relative * size * size;
            let factor = prior.map_or(1.0, |degrees| {
                let chi = ChiSquared::new(degrees).expect("positive");
                degrees / chi.sample(&mut random)
            });
            Scatter {
                observed: typical * factor * chi.sample(&mut random) / DEGREES,
                sampling: size,
                size,
            }
        };
        (0..400).map(of).collect()
    }

    #[test]
    fn trigamma_is_right() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-10);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-10);
        assert!((inverse_trigamma(trigamma(3.7)) - 3.7).abs() < 1e-6);
    }

    #[test]
    fn runs_that_differ_by_sampling_only_have_no_spread() {
        let prior = Prior::of(&rows(0.0, None), DEGREES, 6.0);
        assert!(prior.relative < 1e-4, "{prior:?}");
        assert!(prior.degrees > 50.0, "{prior:?}");
    }

    #[test]
    fn a_spread_between_runs_is_found() {
        let prior = Prior::of(&rows(0.04, None), DEGREES, 6.0);
        assert!((0.03..0.05).contains(&prior.relative), "{prior:?}");
        assert!(prior.degrees > 30.0, "{prior:?}");
        let prior = Prior::of(&rows(0.04, Some(6.0)), DEGREES, 6.0);
        assert!((0.03..0.055).contains(&prior.relative), "{prior:?}");
        assert!((4.0..10.0).contains(&prior.degrees), "{prior:?}");
    }

    #[test]
    fn few_rows_stand_for_themselves() {
        let rows = rows(0.04, None);
        let prior = Prior::of(&rows[..5], DEGREES, 6.0);
        let spread = prior.spread(&rows[0], DEGREES);
        assert_eq!(spread.degrees, DEGREES);
        assert_eq!(
            spread.between,
            (rows[0].observed - rows[0].sampling).max(0.0)
        );
    }
}
