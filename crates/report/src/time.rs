//! Time samples: where a program was, many times a second.
//!
//! Each sample stands for the same length of time, so what is estimated is a share: of `n` samples,
//! `k` were in a function. Their number is binomial, and the interval of the share is Wilson's
//! ("Probable inference, the law of succession, and statistical inference", 1927), which holds for few samples
//! and for shares near 0 and 1 too. The whole is taken as known.

use nthbyte_profile::Profile;

use crate::estimate::{Estimate, Z};
use crate::inclusive::Sum;
use crate::text;

impl Sum for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

/// How many time samples each stack has. Indexes are
/// [`NodeId`](nthbyte_profile::event::NodeId)s.
pub(crate) fn stacks(profile: &Profile) -> Vec<u64> {
    let mut stacks = vec![0; profile.stacks.len()];
    for sample in &profile.cpu {
        stacks[sample.stack.index()] += 1;
    }
    stacks
}

/// Turns numbers of time samples into time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clock {
    /// All time samples.
    pub(crate) samples: u64,
    /// Samples a second; `None` if it is not known: then the figures are numbers of samples.
    pub(crate) hz: Option<u32>,
}

impl Clock {
    pub(crate) fn of(profile: &Profile) -> Self {
        Self {
            samples: profile.cpu.len() as u64,
            hz: profile.meta.cpu_hz.filter(|&hz| hz > 0),
        }
    }

    /// The time of all samples together.
    pub(crate) fn whole(&self) -> f64 {
        self.samples as f64 / f64::from(self.hz.unwrap_or(1))
    }

    /// The time that `count` of the samples stand for.
    pub(crate) fn time(&self, count: u64) -> Estimate {
        if self.samples == 0 {
            return Estimate::exact(0.0);
        }
        let (low, high) = wilson(count, self.samples);
        let whole = self.whole();
        Estimate {
            estimate: whole * count as f64 / self.samples as f64,
            low: whole * low,
            high: whole * high,
        }
    }

    /// A time as text: with both ends of its interval, or the larger distance from it.
    pub(crate) fn show(&self, time: &Estimate, wide: bool) -> String {
        let shown = self.figure(time.estimate);
        if time.estimate == 0.0 || time.low >= time.high {
            shown
        } else if wide {
            format!(
                "{shown} ({}–{})",
                self.figure(time.low),
                self.figure(time.high)
            )
        } else {
            format!("{shown} ±{}", crate::summary::error(time))
        }
    }

    /// A time as text, without an interval.
    pub(crate) fn figure(&self, value: f64) -> String {
        match self.hz {
            None => text::count(value),
            Some(_) if value == 0.0 => "0 s".to_owned(),
            Some(_) => text::duration((value * 1e9) as u64),
        }
    }
}

/// Wilson's 95 % interval of a share, of which `count` in `of` were seen.
fn wilson(count: u64, of: u64) -> (f64, f64) {
    let (count, of) = (count as f64, of as f64);
    let share = count / of;
    let square = Z * Z;
    let middle = (count + square / 2.0) / (of + square);
    let half = Z / (of + square) * (count * (1.0 - share) + square / 4.0).sqrt();
    // The formula holds these limits, but for rounding.
    let low = (middle - half).clamp(0.0, share);
    let high = (middle + half).clamp(share, 1.0);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_where_a_share_is_just_not_refused() {
        // Wilson's limits p solve |k/n - p| = z sqrt(p (1 - p) / n).
        for (count, of) in [(0, 1), (1, 1), (1, 10), (10, 100), (99, 100), (3, 100_000)] {
            let (low, high) = wilson(count, of);
            let share = count as f64 / of as f64;
            for (limit, certain) in [(low, count == 0), (high, count == of)] {
                let distance = (share - limit).abs();
                let expected = Z * (limit * (1.0 - limit) / of as f64).sqrt();
                assert!((distance - expected).abs() < 1e-9, "{count} of {of}");
                assert_eq!(distance < 1e-12, certain, "{count} of {of}");
            }
        }
    }

    #[test]
    fn times_are_shown_in_their_unit() {
        let mut clock = Clock {
            samples: 1000,
            hz: Some(100),
        };
        assert_eq!(clock.show(&clock.time(500), false), "5.00 s ±6.2%");
        assert_eq!(clock.show(&clock.time(500), true), "5.00 s (4.69 s–5.31 s)");
        assert_eq!(clock.show(&clock.time(0), true), "0 s");
        clock.hz = None;
        assert_eq!(clock.show(&clock.time(500), true), "500 (469–531)");
    }
}
