//! The distance to the next sample point.

use crate::{Distances, Period, SamplePoints};

/// The distance to the next sample point.
///
/// Invariant: the next sample point is the `bytes_until_sample`-th byte from here, and
/// `bytes_until_sample` ≥ 1. So an allocation of `s` bytes is sampled if, and only if,
/// `s >= bytes_until_sample`. An allocator that checks `free + s > limit` sets
/// `limit = free + bytes_until_sample - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Countdown {
    bytes_until_sample: u64,
}

impl Countdown {
    /// A countdown that never ends: sampling is off.
    pub const NEVER: Self = Self {
        bytes_until_sample: u64::MAX,
    };

    /// The sample points in one allocation are drawn one by one up to this number.
    const DRAWN_POINTS: u32 = 64;

    /// A countdown to the next of the sample points.
    #[must_use]
    pub fn new(points: &mut SamplePoints) -> Self {
        Self {
            bytes_until_sample: points.next_distance(),
        }
    }

    /// A countdown that an allocator keeps as a number: the next sample point is this many bytes away, at least 1.
    #[must_use]
    pub const fn of_bytes(bytes_until_sample: u64) -> Self {
        Self {
            bytes_until_sample: if bytes_until_sample == 0 {
                1
            } else {
                bytes_until_sample
            },
        }
    }

    /// How many bytes away the next sample point is: 1 if it is the next byte.
    #[must_use]
    pub const fn bytes_until_sample(&self) -> u64 {
        self.bytes_until_sample
    }

    /// How many allocations of `size` bytes (not 0) come before the one that is sampled.
    #[must_use]
    pub const fn allocations_until_sample(&self, size: u64) -> u64 {
        match self.bytes_until_sample.saturating_sub(1).checked_div(size) {
            Some(allocations) => allocations,
            None => u64::MAX,
        }
    }

    /// Passes `bytes` that have no sample point among them, as the caller knows. If there is one after all, it
    /// moves to the next byte.
    pub const fn pass(&mut self, bytes: u64) {
        if self.bytes_until_sample == u64::MAX {
            return;
        }
        let left = self.bytes_until_sample.saturating_sub(bytes);
        self.bytes_until_sample = if left == 0 { 1 } else { left };
    }

    /// Passes fewer bytes than the next sample point is away.
    #[inline(always)]
    pub const fn pass_fewer(&mut self, bytes: u64) {
        debug_assert!(bytes < self.bytes_until_sample);
        if self.bytes_until_sample != u64::MAX {
            self.bytes_until_sample -= bytes;
        }
    }

    /// Allocates `bytes`: how many sample points lie among them?
    ///
    /// Nothing is drawn unless there is at least one. With fixed distances the number is exact. With
    /// exponential distances it is exact up to 64; for the bytes after the 64th point, it is the expected
    /// number, and the countdown starts again at the end of the allocation. That is allowed because the distribution
    /// has no memory. (The weight of a sample does not depend on the number.)
    #[inline(always)]
    pub fn advance(&mut self, bytes: u64, points: &mut SamplePoints) -> u32 {
        if bytes < self.bytes_until_sample {
            if self.bytes_until_sample != u64::MAX {
                self.bytes_until_sample -= bytes;
            }
            return 0;
        }
        let past_first = bytes - self.bytes_until_sample;
        match points.distances() {
            Distances::Fixed | Distances::Every => {
                let period = points.period().divisor();
                let more = past_first / period;
                self.bytes_until_sample = period.get() - past_first % period;
                saturating_u32(more.saturating_add(1))
            }
            Distances::Exponential => {
                let mut past = past_first;
                let mut count = 1;
                loop {
                    let distance = points.next_distance();
                    if distance > past {
                        self.bytes_until_sample = distance - past;
                        return count;
                    }
                    past -= distance;
                    count += 1;
                    if count == Self::DRAWN_POINTS {
                        self.bytes_until_sample = points.next_distance();
                        return saturating_u32(past / points.period().divisor())
                            .saturating_add(count);
                    }
                }
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
const fn saturating_u32(number: u64) -> u32 {
    if number > u32::MAX as u64 {
        u32::MAX
    } else {
        number as u32
    }
}

/// Sample points and one countdown: what an allocator with a single stream of bytes needs.
#[derive(Clone, Debug)]
pub struct Sampler {
    points: SamplePoints,
    countdown: Countdown,
}

impl Sampler {
    /// A sampler whose first sample point is one distance away.
    #[must_use]
    pub fn new(period: Period, distances: Distances, seed: u64) -> Self {
        let mut points = SamplePoints::new(period, distances, seed);
        let countdown = Countdown::new(&mut points);
        Self { points, countdown }
    }

    /// Allocates `bytes`: how many sample points lie among them? See [`Countdown::advance`].
    pub fn advance(&mut self, bytes: u64) -> u32 {
        self.countdown.advance(bytes, &mut self.points)
    }

    /// Sets the period of the bytes to come, and draws the distance to the next sample point anew. See
    /// [`SamplePoints::set_period`].
    pub fn set_period(&mut self, period: Period) {
        self.points.set_period(period);
        self.countdown = Countdown::new(&mut self.points);
    }

    /// Continues with other sample points, for the child of a fork. See [`SamplePoints::diverge`]. Points with fixed
    /// distances stay.
    pub fn diverge(&mut self, number: u64) {
        if self.points.diverge(number) {
            self.countdown = Countdown::new(&mut self.points);
        }
    }

    /// How many bytes away the next sample point is; at least 1. See [`Countdown`].
    #[must_use]
    pub const fn bytes_until_sample(&self) -> u64 {
        self.countdown.bytes_until_sample()
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.points.period()
    }

    /// The distribution of the distances.
    #[must_use]
    pub const fn distances(&self) -> Distances {
        self.points.distances()
    }
}
