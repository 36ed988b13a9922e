//! Time samples: the running function, recorded many times a second.
//!
//! Each sample stands for the same length of time, so a share is estimated: of `n` samples,
//! `k` were in a function. `k` is binomial, and the interval of the share is Wilson's
//! ("Probable inference, the law of succession, and statistical inference", 1927), which holds for few samples
//! and for shares near 0 and 1 too. The whole is taken as known.
//!
//! If the period changed during the session, each sample stands for its own period. Then `n` is
//! Kish's effective sample size (the number of equal samples that give the same variance), and `k`
//! is the same share of it. A function may have run while the period was long, and no sample hit it: so the upper end allows for
//! one more sample of the longest period, and the lower end for one that the rest has missed (see [`crate::interval`]).

use nthbyte_profile::Profile;
use nthbyte_profile::model::TimeSample;

use crate::estimate::Estimate;
use crate::inclusive::{ByStack, Sparse, Sum};
use crate::interval::Z;
use crate::quantity::Quantity;
use crate::text;

/// The totals of some time samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeTotals {
    /// Number of samples.
    pub samples: u64,
    /// The time that they stand for: nanoseconds, or the number of samples if the period is unknown. These are sums of
    /// integers, so that the parts add up exactly to the whole.
    pub time: f64,
}

impl Sum for TimeTotals {
    fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.time += other.time;
    }
}

/// The time samples of each stack.
pub(crate) fn stacks(profile: &Profile) -> ByStack<TimeTotals> {
    let mut sums = ByStack::<TimeTotals>::new(profile.stacks.len());
    count(profile, |sample, totals| {
        sums.of_mut(sample.stack.index()).add(totals);
    });
    sums
}

/// The time samples of each process. Indexes are [`ProcessId`](nthbyte_profile::model::ProcessId)s.
pub(crate) fn processes(profile: &Profile) -> Vec<TimeTotals> {
    let mut sums = vec![TimeTotals::default(); profile.processes.len()];
    count(profile, |sample, totals| {
        sums[profile.process_of(sample.thread).index()].add(totals);
    });
    sums
}

/// The time samples of each label set.
pub(crate) fn labels(profile: &Profile) -> Sparse<TimeTotals> {
    let mut sums: Sparse<TimeTotals> = Sparse::new(profile.label_sets.len());
    count(profile, |sample, totals| {
        sums.of_mut(sample.labels.index()).add(totals);
    });
    sums
}

fn count(profile: &Profile, mut pass: impl FnMut(&TimeSample, &TimeTotals)) {
    let each = each(profile);
    for sample in &profile.cpu {
        let totals = TimeTotals {
            samples: 1,
            time: each[sample.sampling.index()],
        };
        pass(sample, &totals);
    }
}

/// The time that a sample stands for: in nanoseconds, or 1 if periods are unknown. Indexes are
/// [`SamplingId`](nthbyte_profile::model::SamplingId)s.
fn each(profile: &Profile) -> Vec<f64> {
    let is_known = profile.time_hz().is_some();
    let samplings = profile.samplings.iter();
    samplings
        .map(|sampling| {
            if is_known {
                sampling.period as f64
            } else {
                1.0
            }
        })
        .collect()
}

/// Running time, by the time samples of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// All time samples.
    pub(crate) samples: u64,
    /// The time of all samples together, as in [`TimeTotals`].
    whole: f64,
    /// What a sample stands for: the whole, divided by Kish's effective sample size.
    each: f64,
    /// What a sample of the longest period stands for.
    heaviest: f64,
    /// Samples per second, on average. If it is `None` (unknown), the figures are numbers of samples.
    pub(crate) hz: Option<f64>,
}

impl Time {
    pub(crate) fn new(profile: &Profile) -> Self {
        let each = each(profile);
        let mut counts = vec![0_u64; each.len()];
        for sample in &profile.cpu {
            counts[sample.sampling.index()] += 1;
        }
        let of_all = |weight: fn(f64) -> f64| -> f64 {
            let parts = counts.iter().zip(&each);
            parts
                .map(|(&count, &time)| count as f64 * weight(time))
                .sum()
        };
        let (whole, squares) = (of_all(|time| time), of_all(|time| time * time));
        Self {
            samples: profile.cpu.len() as u64,
            whole,
            each: if whole > 0.0 { squares / whole } else { 0.0 },
            heaviest: counts
                .iter()
                .zip(&each)
                .filter(|(count, _)| **count > 0)
                .fold(0.0, |most, (_, time)| most.max(*time)),
            hz: profile.time_hz(),
        }
    }

    /// The time of all samples together, in seconds if their period is known.
    pub(crate) fn whole(&self) -> f64 {
        self.shown(self.whole)
    }

    /// A time from [`TimeTotals`], in seconds if the period is known.
    fn shown(&self, time: f64) -> f64 {
        if self.hz.is_some() { time / 1e9 } else { time }
    }

    /// A time as a part of the whole.
    pub(crate) fn share(&self, time: f64) -> f64 {
        (time / self.whole).min(1.0)
    }

    /// The estimate for some of the samples that stand for this time together, as in [`TimeTotals`].
    pub(crate) fn time(&self, time: f64) -> Estimate {
        if self.samples == 0 {
            return Estimate::exact(0.0);
        }
        let whole = self.whole();
        let share = self.share(time);
        Estimate {
            estimate: whole * share,
            low: whole * (1.0 - self.highest(1.0 - share)).clamp(0.0, share),
            high: whole * self.highest(share),
        }
    }

    /// The upper end of a share.
    fn highest(&self, share: f64) -> f64 {
        // Kish's weight of the samples of this share, and of one more of the longest period.
        let (time, more) = (share * self.whole, self.heaviest);
        let each = (time * self.each + more * more) / (time + more);
        let effective = self.whole / each;
        wilson(share * effective, effective).1
    }

    /// A time as text, with both ends of its interval or with the larger distance to an end.
    pub(crate) fn show(&self, time: &Estimate, wide: bool) -> String {
        let shown = self.shown_alone(time.estimate);
        if time.estimate == 0.0 || time.low >= time.high {
            shown
        } else if wide {
            format!(
                "{shown} ({}–{})",
                self.shown_alone(time.low),
                self.shown_alone(time.high)
            )
        } else {
            format!("{shown} ±{}", time.relative_error())
        }
    }

    /// A time as text, without an interval.
    pub(crate) fn shown_alone(&self, value: f64) -> String {
        match self.hz {
            None => text::count(value),
            Some(_) => text::duration((value * 1e9) as u64),
        }
    }
}

impl Quantity for Time {
    type Sum = TimeTotals;

    fn of(profile: &Profile) -> (Self, ByStack<TimeTotals>) {
        (Self::new(profile), stacks(profile))
    }

    fn size(sum: &TimeTotals) -> f64 {
        sum.time
    }

    fn figure(&self, sum: &TimeTotals) -> String {
        let time = self.time(sum.time);
        let shown = self.shown_alone(time.estimate);
        // The total time is treated as exact.
        let error = if sum.samples == self.samples {
            String::new()
        } else {
            format!("±{}", time.relative_error())
        };
        format!("{shown:>8} {error:<6}")
    }
}

/// Wilson's 95 % interval of a share, given `count` of `of` samples.
fn wilson(count: f64, of: f64) -> (f64, f64) {
    let share = (count / of).min(1.0);
    let square = Z * Z;
    let middle = (count + square / 2.0) / (of + square);
    let half = Z / (of + square) * (count * (1.0 - share) + square / 4.0).sqrt();
    // The formula stays within these limits, except for rounding.
    let low = (middle - half).clamp(0.0, share);
    let high = (middle + half).clamp(share, 1.0);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_solve_wilsons_equation() {
        // Wilson's limits p solve |k/n - p| = z sqrt(p (1 - p) / n).
        for (count, of) in [
            (0_u32, 1_u32),
            (1, 1),
            (1, 10),
            (10, 100),
            (99, 100),
            (3, 100_000),
        ] {
            let (low, high) = wilson(f64::from(count), f64::from(of));
            let share = f64::from(count) / f64::from(of);
            for (limit, certain) in [(low, count == 0), (high, count == of)] {
                let distance = (share - limit).abs();
                let expected = Z * (limit * (1.0 - limit) / f64::from(of)).sqrt();
                assert!((distance - expected).abs() < 1e-9, "{count} of {of}");
                assert_eq!(distance < 1e-12, certain, "{count} of {of}");
            }
        }
    }

    #[test]
    fn times_are_shown_in_their_unit() {
        let mut clock = Time {
            samples: 1000,
            whole: 10e9,
            each: 10e6,
            heaviest: 10e6,
            hz: Some(100.0),
        };
        assert_eq!(clock.show(&clock.time(5e9), false), "5.00 s ±6.2%");
        assert_eq!(clock.show(&clock.time(5e9), true), "5.00 s (4.69 s–5.31 s)");
        assert_eq!(clock.show(&clock.time(0.0), true), "0 s");
        (clock.hz, clock.whole, clock.each, clock.heaviest) = (None, 1000.0, 1.0, 1.0);
        assert_eq!(clock.show(&clock.time(500.0), true), "500 (469–531)");
    }
}
