//! Where the sample points lie.

use crate::{Period, Random, logarithm::negative_ln};

/// How the distances between sample points are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Distances {
    /// Exponentially: each byte is a sample point with the same probability, independently of all others, such
    /// that an allocation of `s` bytes is sampled with probability 1 - exp(-s/period). This is a Poisson
    /// process, rounded up to whole bytes. A regular pattern in the program's allocations cannot bias it.
    Exponential,
    /// Exactly every `period`-th byte is a sample point (section 3.1 of "Low Overhead Allocation Sampling in a
    /// Garbage Collected Virtual Machine").
    Fixed,
    /// Each byte is a sample point: the period is 1, every allocation is sampled, and the figures are exact.
    Every,
}

impl Distances {
    /// The name in files and settings: `exponential`, `fixed` or `every`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Fixed => "fixed",
            Self::Every => "every",
        }
    }

    /// What a name stands for; `None` if it is not known.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Exponential, Self::Fixed, Self::Every]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// An endless sequence of sample points: a period, a distribution and a seed.
#[derive(Clone, Debug)]
pub struct SamplePoints {
    period: Period,
    distances: Distances,
    random: Random,
}

impl SamplePoints {
    /// The sequence that these three determine. [`Period::EVERY`] and [`Distances::Every`] imply each other.
    #[must_use]
    pub const fn new(period: Period, distances: Distances, seed: u64) -> Self {
        let (period, distances) = match (period.bytes(), distances) {
            (1, _) | (_, Distances::Every) => (Period::EVERY, Distances::Every),
            _ => (period, distances),
        };
        Self {
            period,
            distances,
            random: Random::new(seed),
        }
    }

    /// The mean distance.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The distribution; [`Distances::Every`] if, and only if, the period is [`Period::EVERY`].
    #[must_use]
    pub const fn distances(&self) -> Distances {
        self.distances
    }

    /// Sets the mean distance of the points to come. The sequence of random numbers goes on. The caller draws the distance
    /// that it counts down anew ([`Countdown::new`](crate::Countdown::new)): with exponential distances that changes
    /// nothing but the mean, because what remains of a distance is distributed like a whole one.
    ///
    /// Nothing changes with [`Distances::Every`], and a period of [`Period::EVERY`] is not set.
    pub const fn set_period(&mut self, period: Period) {
        if !matches!(self.distances, Distances::Every) && period.bytes() != 1 {
            self.period = period;
        }
    }

    /// Continues with other random numbers, for the child of a fork: another sequence for each number. Returns whether
    /// that changes the points: then the caller draws the distance that it counts down anew, as for [`Self::set_period`].
    /// Fixed distances are not random; one that is drawn anew would lose what was counted of it.
    ///
    /// Without this, children of one process that do the same are sampled at the same points, and a report takes their
    /// samples for independent ones.
    pub const fn diverge(&mut self, number: u64) -> bool {
        let mut other = Random::new(self.random.next_u64() ^ number);
        self.random = Random::new(other.next_u64());
        matches!(self.distances, Distances::Exponential)
    }

    /// The distance from one sample point to the next, in bytes: from 1 to less than 2^46.
    ///
    /// Exponential: ⌈-ln(u)·period⌉ with u uniform in (0, 1]. P(distance > s) = exp(-s/period)
    /// holds for every whole s, so rounding up is exact.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    #[inline(always)]
    pub fn next_distance(&mut self) -> u64 {
        match self.distances {
            Distances::Fixed | Distances::Every => self.period.bytes(),
            Distances::Exponential => {
                let distance = negative_ln(self.random.next_unit()) * self.period.bytes() as f64;
                let whole = distance as u64; // at most 45·2^40
                let up = whole.saturating_add(((whole as f64) < distance) as u64);
                if up == 0 { 1 } else { up }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{Distances, SamplePoints, negative_ln};
    use crate::{Period, Random};

    #[test]
    fn fixed_is_fixed_and_every_is_one() {
        let period = Period::new(4096).unwrap();
        let mut points = SamplePoints::new(period, Distances::Fixed, 3);
        assert!((0..100).all(|_| points.next_distance() == 4096));
        let mut every = SamplePoints::new(Period::EVERY, Distances::Exponential, 3);
        assert!((0..100).all(|_| every.next_distance() == 1));
        assert_eq!(every.distances(), Distances::Every);
        let every = SamplePoints::new(period, Distances::Every, 3);
        assert_eq!(every.period(), Period::EVERY);
    }

    /// Kolmogorov's distance between the drawn and the exact distribution, for a million draws and a significance of
    /// one in a million: sqrt(-ln(1e-6/2)/2)/sqrt(1e6) = 0.0027.
    #[test]
    fn exponential_is_exponential() {
        for (seed, bytes) in [(1, 64), (2, 524_288), (3, Period::MAX)] {
            let period = Period::new(bytes).unwrap();
            let mut points = SamplePoints::new(period, Distances::Exponential, seed);
            let mut drawn: std::vec::Vec<u64> =
                (0..1_000_000).map(|_| points.next_distance()).collect();
            drawn.sort_unstable();
            let worst = drawn
                .chunk_by(|a, b| a == b)
                .scan(0usize, |below, equal| {
                    *below += equal.len();
                    Some((equal[0], *below))
                })
                .map(|(distance, below)| {
                    let exact = -(-(distance as f64) / bytes as f64).exp_m1();
                    (below as f64 / 1e6 - exact).abs()
                })
                .fold(0.0, f64::max);
            assert!(worst < 0.0027, "period {bytes}: {worst}");
        }
    }

    /// The children of a process continue with sequences of their own, and a program that runs again has the same ones.
    #[test]
    fn each_child_has_other_distances() {
        let period = Period::new(1 << 20).unwrap();
        let mut parent = SamplePoints::new(period, Distances::Exponential, 5);
        let mut sequences: std::vec::Vec<std::vec::Vec<u64>> = (1..=100)
            .map(|number| {
                let mut child = parent.clone();
                child.diverge(number);
                let mut again = parent.clone();
                again.diverge(number);
                let drawn: std::vec::Vec<u64> = (0..20).map(|_| child.next_distance()).collect();
                assert!(
                    drawn
                        .iter()
                        .all(|&distance| distance == again.next_distance())
                );
                drawn
            })
            .collect();
        sequences.push((0..20).map(|_| parent.next_distance()).collect());
        // A sequence that begins later in another one has distances of it, too.
        let mut all = sequences.concat();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 101 * 20 - 20);
    }

    /// At the largest period, one distance in some thousands is whole before it is rounded.
    #[test]
    fn distances_are_rounded_up() {
        let period = Period::new(Period::MAX).unwrap();
        let mut points = SamplePoints::new(period, Distances::Exponential, 4);
        let mut random = Random::new(4);
        let mut whole = 0;
        for _ in 0..200_000 {
            let exact = negative_ln(random.next_unit()) * Period::MAX as f64;
            assert_eq!(points.next_distance(), (exact.ceil() as u64).max(1));
            whole += u32::from(exact.fract() == 0.0);
        }
        assert!(whole > 5);
    }

    #[test]
    fn the_seed_decides() {
        let sequence = |seed| {
            let period = Period::new(524_288).unwrap();
            let mut points = SamplePoints::new(period, Distances::Exponential, seed);
            core::array::from_fn::<u64, 16, _>(|_| points.next_distance())
        };
        assert_eq!(sequence(5), sequence(5));
        assert_ne!(sequence(5), sequence(6));
    }
}
