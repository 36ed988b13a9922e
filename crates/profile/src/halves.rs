//! Two halves of the allocation samples: each is what a session with twice the period could have recorded of the same run.
//!
//! A moment that is found in samples is one at which they are rather too many. So what the same samples say of that moment
//! is too high (a selection bias). A report finds it with the first half, and asks the second one.
//!
//! - *Exponential distances.* A coin for each sample point says which half it is of. Then the points of the two are
//!   independent Poisson processes of half the rate (the colouring theorem: Kingman, *Poisson Processes*, 1993, section
//!   5.1). Let `p` be the probability that a block is sampled, and `q` that with twice the period. A sampled block is in
//!   the first half alone with the probability `1 - q/p`, in the second one alone with the same, and in both with
//!   `2q/p - 1`. So small blocks are in one half, and blocks that are much larger than the period in both.
//! - *Fixed distances.* The points of a block are of one half and the other in turn, and a coin says which comes first. The
//!   number of points in a half is distributed as with twice the period.
//! - *Every allocation* is in both halves.
//!
//! The coins are made of the samples' times and numbers: so a sample is in the same half in each report, also when others were
//! removed, and another run has other coins.

use nthbyte_sampling::Random;

use crate::event::SampleId;
use crate::meta::{Distances, Unit};
use crate::model::{Profile, Sampling, Shape};

/// In which halves a sample is: the number of its sample points that a half has; 0 if it is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// The points in the half that finds a moment.
    pub first: u32,
    /// The points in the half that says what was alive then.
    pub second: u32,
}

/// In which halves the samples of a shape are.
#[derive(Clone, Copy, Debug)]
enum Division {
    /// In both.
    Both,
    /// Their points are of the two in turn.
    Turns,
    /// With this probability in the first one, and with the same in the second one.
    Either(f64),
}

impl Division {
    fn of(sampling: &Sampling, shape: Shape) -> Self {
        match sampling.distances {
            _ if sampling.is_every() => Self::Both,
            Distances::Fixed => Self::Turns,
            _ => {
                let twice = sampling.of_half().weight(&shape).probability;
                Self::Either(twice / sampling.weight(&shape).probability)
            }
        }
    }

    /// `coin`: a random number in (0, 1], uniformly distributed.
    #[inline]
    fn halves(self, points: u32, coin: impl FnOnce() -> f64) -> Halves {
        let points = points.max(1);
        let is_in = |half: bool| if half { points } else { 0 };
        match self {
            Self::Both => Halves {
                first: points,
                second: points,
            },
            Self::Turns => {
                let first = points / 2 + points % 2 * u32::from(coin() <= 0.5);
                Halves {
                    first,
                    second: points - first,
                }
            }
            Self::Either(part) => {
                let coin = coin();
                Halves {
                    first: is_in(coin <= part),
                    second: is_in(coin > 1.0 - part),
                }
            }
        }
    }
}

/// The halves of all samples of a profile: what depends on the shapes is computed once.
pub struct Halving {
    /// By shape, with its points.
    divisions: Vec<(Division, u32)>,
}

impl Halving {
    /// For the samples of a profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let shapes = profile.samples.shapes().iter();
        let divisions = shapes.map(|&shape| {
            let sampling = profile.sampling(shape.sampling);
            (Division::of(&sampling, shape), shape.points)
        });
        Self {
            divisions: divisions.collect(),
        }
    }

    /// In which halves a sample of this profile is.
    #[must_use]
    #[inline]
    pub fn halves(&self, profile: &Profile, id: SampleId) -> Halves {
        let samples = &profile.samples;
        let (division, points) = self.divisions[samples.shape_id(id).0 as usize];
        division.halves(points, || {
            let time = Random::new(samples.time(id).0).next_u64();
            Random::new(time ^ u64::from(samples.number(id).0)).next_unit()
        })
    }
}

impl Sampling {
    /// Whether every allocation is a sample.
    fn is_every(&self) -> bool {
        match self.distances {
            Distances::Every => true,
            Distances::Exponential => self.period <= 1,
            Distances::Fixed => false,
        }
    }

    /// The sampling that each half of its samples has: twice the period.
    #[must_use]
    pub fn of_half(&self) -> Self {
        if self.is_every() || self.unit != Unit::Bytes {
            return *self;
        }
        Self {
            period: self.period.max(1).saturating_mul(2),
            ..*self
        }
    }
}

impl Profile {
    /// Keeps only the second half of the allocation samples, with twice the period.
    pub fn keep_second_half(&mut self) {
        let halving = Halving::of(self);
        let ids = self.samples.ids();
        let points: Vec<u32> = ids.map(|id| halving.halves(self, id).second).collect();
        let mut points = points.into_iter();
        self.retain_changed_samples(|sample| {
            sample.shape.points = points.next().unwrap_or(0);
            sample.shape.points > 0
        });
        for sampling in &mut self.samplings {
            *sampling = sampling.of_half();
        }
    }
}
