//! The two clocks of a run: time, and work.
//!
//! Both give a moment as a position from 0, the session's start, to 1, its end. *Time* is the time
//! that a person waits. *Work* is the number of samples until then, each counted as its period: the
//! bytes that the program allocated, with at most one period for each object, so that one very large
//! table does not dominate the clock. Work does not advance while the program waits or the machine is busy with
//! other programs, so it is the better measure for growth in proportion to work. Growth that stops
//! in one of the clocks has stopped.

use std::ops::Range;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::time_order::TimeOrder;

/// A shorter pause may be caused by the machine: it counts as [`PAUSE`] at most. Important pauses, in
/// which the program waits or works without allocating, take longer.
const SHORT: u64 = 500_000_000;

/// The most that a short pause counts, as a part of the run.
const PAUSE: u64 = 50;

/// Nanoseconds that the end of a program may take, if that is more than a twentieth of the run.
const ENDING: u64 = 250_000_000;

/// Positions between which the work clock interpolates.
const MARKS: usize = 1024;

/// What the work clock advances by from a mark to the next one.
pub(crate) const STEP: f32 = 1.0 / MARKS as f32;

/// One of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Nanoseconds, except for short pauses.
    Time = 0,
    /// Samples, each counted as its period.
    Work = 1,
}

/// A moment in both clocks, by [`Clock`]. Single precision: there is one for each sample.
pub(crate) type Instant = [f32; 2];

/// Turns nanoseconds into positions.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    end: u64,
    /// The pauses that count less, in their order.
    pauses: Vec<Pause>,
    /// The times at which the work clock stands at 0, 1/MARKS, … 1.
    marks: Vec<u64>,
}

/// A pause that counts less than it takes. All in nanoseconds.
#[derive(Clone, Debug)]
struct Pause {
    from: u64,
    to: u64,
    /// How much less it counts, and all of those before.
    off: u64,
    off_before: u64,
}

impl Pause {
    /// The time to subtract from a moment in the pause, or after it and before the next one.
    fn off_at(&self, at: u64) -> u64 {
        let passed = u128::from(at.min(self.to) - self.from);
        self.off_before + (u128::from(self.off) * passed / u128::from(self.to - self.from)) as u64
    }
}

impl Clocks {
    pub(crate) fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let order = TimeOrder::of(samples);
        // A sample counts as the period that it was taken with.
        let periods = samples.shapes().iter().map(|shape| {
            let sampling = profile.samplings.get(shape.sampling.index());
            sampling.map_or(1, |of| of.period.max(1))
        });
        let periods: Vec<u64> = periods.collect();
        let period = |id: SampleId| u128::from(periods[samples.shape_id(id).0 as usize]);
        let all: u128 = samples.ids().map(period).sum();
        let mut marks = vec![0];
        let (mut done, mut last) = (0, 0);
        for (time, id) in order.pass(samples) {
            last = time.0;
            done += period(id);
            while marks.len() < MARKS && done * MARKS as u128 > marks.len() as u128 * all {
                marks.push(time.0);
            }
        }
        let end = profile.end.0.max(last).max(1);
        marks.resize(MARKS + 1, end);
        let most = end / PAUSE;
        let mut off = 0;
        let mut pauses = Vec::new();
        // A process may wait for the machine after its last sample too, before it ends.
        let times = || order.pass(samples).map(|(time, _)| time.0);
        for (from, to) in times().zip(times().skip(1).chain([end])) {
            let pause = to - from;
            if pause > most && pause < SHORT {
                pauses.push(Pause {
                    from,
                    to,
                    off: pause - most,
                    off_before: off,
                });
                off += pause - most;
            }
        }
        Self { end, pauses, marks }
    }

    /// The position of a moment in both clocks.
    pub(crate) fn moment(&self, at: Nanos) -> Instant {
        [self.time(at) as f32, self.work(at) as f32]
    }

    fn time(&self, at: Nanos) -> f64 {
        let begun = self.pauses.partition_point(|pause| pause.from <= at.0);
        let off = |pauses: &[Pause], at| pauses.last().map_or(0, |pause| pause.off_at(at));
        let length = self.end - off(&self.pauses, self.end);
        let position = at.0 - off(&self.pauses[..begun], at.0);
        (position as f64 / length as f64).min(1.0)
    }

    fn work(&self, at: Nanos) -> f64 {
        let after = self.marks.partition_point(|&mark| mark <= at.0);
        if after > MARKS {
            return 1.0;
        }
        if after == 0 {
            return 0.0;
        }
        let (low, high) = (self.marks[after - 1], self.marks[after]);
        let part = (at.0 - low) as f64 / (high - low) as f64;
        ((after - 1) as f64 + part) / MARKS as f64
    }

    /// The times from which and until which the work clock is at the same mark, around a time. Both clocks advance by at most
    /// [`STEP`] between two times within that are at most [`step`](Self::step) apart.
    pub(crate) fn mark(&self, at: Nanos) -> Range<u64> {
        let after = self.marks.partition_point(|&mark| mark <= at.0);
        let mark = |number: usize| self.marks.get(number).copied();
        let from = after.checked_sub(1).and_then(mark).unwrap_or(0);
        from..mark(after).unwrap_or(u64::MAX)
    }

    /// The nanoseconds in which the time clock advances by at most [`STEP`].
    pub(crate) fn step(&self) -> u64 {
        let off = self.pauses.last().map_or(0, |pause| pause.off_at(self.end));
        (self.end - off) / MARKS as u64
    }

    /// The moment at which the program's end may have begun: after 99 % of the work, and late. A
    /// program that returns from its main function frees the objects of that function in almost no
    /// time and without allocating.
    pub(crate) fn closing(&self) -> Nanos {
        let worked = self.marks[MARKS * 99 / 100];
        let takes = (self.end / 20).max(ENDING).min(self.end / 2);
        Nanos(worked.max(self.end - takes))
    }

    /// The nanosecond at a position of the work clock.
    pub(crate) fn nanos_of_work(&self, position: f64) -> f64 {
        let at = position.clamp(0.0, 1.0) * MARKS as f64;
        let low = (at as usize).min(MARKS - 1);
        let (from, to) = (self.marks[low] as f64, self.marks[low + 1] as f64);
        from + (to - from) * (at - low as f64)
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::SourceId;
    use nthbyte_profile::meta::{Distances, Meta, Unit};
    use nthbyte_profile::model::{Sampling, SamplingId};
    use nthbyte_profile::synthetic;

    use super::*;

    fn push(profile: &mut Profile, time: u64, sampling: u32) {
        let made = synthetic::sample(Nanos(time), 16, SamplingId(sampling));
        profile.samples.push(made);
    }

    /// A sample each millisecond for 100 ms, with a pause after the one with this number; then the end.
    fn clocks(pause_after: u64, pause: u64) -> Clocks {
        let mut profile = Profile::empty(Meta::default());
        let time = |number: u64| number * 1_000_000 + if number > pause_after { pause } else { 0 };
        for number in 0..100 {
            push(&mut profile, time(number), 0);
        }
        profile.end = Nanos(time(100));
        Clocks::of(&profile)
    }

    #[test]
    fn time_goes_on_evenly_within_a_pause() {
        for pause_after in [0, 40, 99] {
            let pause = 60_000_000;
            let clocks = clocks(pause_after, pause);
            let end = clocks.end / 1_000_000;
            let at = |milliseconds: u64| clocks.time(Nanos(milliseconds * 1_000_000));
            let steps = (0..end).map(|at_first| at(at_first + 1) - at(at_first));
            // Of 160 ms, the pause counts 3.2 ms, so that 102.2 ms are left.
            let length = 102.2;
            for (number, step) in steps.enumerate() {
                let in_pause = (pause_after..pause_after + 61).contains(&(number as u64));
                let expected = if in_pause { 3.2 / 61.0 } else { 1.0 } / length;
                assert!(
                    (step - expected).abs() < 2e-4,
                    "{pause_after}: {number}: {step}"
                );
            }
            assert!((at(end) - 1.0).abs() < 1e-9);
        }
    }

    /// At first 32 samples a millisecond of 16 KiB each, then one of 512 KiB: the program works evenly.
    #[test]
    fn a_sample_counts_as_its_period() {
        let mut profile = Profile::empty(Meta::default());
        let sampling = |period| Sampling {
            source: SourceId::ALLOCATIONS,
            unit: Unit::Bytes,
            distances: Distances::Exponential,
            period,
            lost: 0,
        };
        profile.samplings = vec![sampling(16 << 10), sampling(512 << 10)];
        (0..3200).for_each(|number| push(&mut profile, number * 31_250, 0));
        (100..1000).for_each(|number| push(&mut profile, number * 1_000_000, 1));
        profile.end = Nanos(1_000_000_000);
        let clocks = Clocks::of(&profile);
        for tenth in 1..10 {
            let work = clocks.work(Nanos(tenth * 100_000_000));
            assert!((work - tenth as f64 / 10.0).abs() < 3e-3, "{tenth}: {work}");
        }
    }

    #[test]
    fn a_short_pause_counts_little_wherever_it_is() {
        for after in [0, 50, 99] {
            let short = clocks(after, 300_000_000);
            // The 301 ms of the pause count as a fiftieth of the run's 400 ms: 107 ms in all.
            let before = short.time(Nanos(after * 1_000_000));
            assert!((before - after as f64 / 107.0).abs() < 1e-3, "{before}");
            let long = clocks(after, 900_000_000);
            assert!(long.time(Nanos(after * 1_000_000)) <= 0.1);
            assert!((short.time(Nanos(400_000_000)) - 1.0).abs() < 1e-9);
        }
    }
}
