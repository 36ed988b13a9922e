//! How much a process has allocated until a time, by the samples.
//!
//! A sample stands for the allocations since the one before it, and they are taken to be spread
//! evenly over that time. So this clock knows the allocated bytes between two times to about a period. If every
//! allocation was recorded, it is exact.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, ThreadId};
use nthbyte_profile::model::{Lifetime, ProcessId, Sample};
use nthbyte_profile::time_order::TimeOrder;

/// The clocks of all processes.
pub(super) struct Work {
    processes: Vec<Clock>,
}

#[derive(Default)]
struct Clock {
    samples: Vec<Mark>,
    /// When collections of the youngest generation ended, in order.
    collections: Vec<Nanos>,
}

/// A sample.
#[derive(Clone, Copy)]
struct Mark {
    time: Nanos,
    /// Bytes allocated until then, its own object included.
    bytes: f64,
    /// Bytes of its own object.
    own: f64,
}

impl Work {
    pub(super) fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let weights = profile.shape_weights();
        let mut processes: Vec<Clock> = Vec::new();
        processes.resize_with(profile.processes.len().max(1), Clock::default);
        let process = |thread: ThreadId| profile.process_of(thread).index();
        for (time, id) in TimeOrder::of(samples).pass(samples) {
            let clock = &mut processes[process(samples.thread(id))];
            let before = clock.samples.last().map_or(0.0, |last| last.bytes);
            clock.samples.push(Mark {
                time,
                bytes: before + weights[samples.shape_id(id).0 as usize].bytes,
                own: samples.size(id) as f64,
            });
        }
        for collection in &profile.collections {
            if collection.kind.ends_youth() {
                let end = collection.start.0.saturating_add(collection.duration.0);
                processes[process(collection.thread)]
                    .collections
                    .push(Nanos(end));
            }
        }
        for clock in &mut processes {
            clock.collections.sort_unstable();
        }
        Self { processes }
    }

    /// Bytes that the process allocated between the allocation of an object and its free; `None` if
    /// it was not freed, or if that is not known. On PyPy an object that died young is taken to be
    /// freed by the next minor collection.
    pub(super) fn until_freed(&self, process: ProcessId, sample: &Sample) -> Option<f64> {
        let clock = self.processes.get(process.index())?;
        let freed = match (sample.freed, sample.lifetime) {
            (Some(freed), _) => freed,
            (None, Lifetime::DiedYoung) => {
                let next = clock.collections.partition_point(|&end| end < sample.time);
                *clock.collections.get(next)?
            }
            (None, _) => return None,
        };
        Some((clock.at(freed) - clock.at(sample.time)).max(0.0))
    }
}

impl Clock {
    /// Bytes allocated until this time, by all samples of this time too.
    fn at(&self, time: Nanos) -> f64 {
        let after = self.samples.partition_point(|mark| mark.time <= time);
        let (from, start) = match after.checked_sub(1) {
            Some(before) => (self.samples[before].time, self.samples[before].bytes),
            None => (Nanos(0), 0.0),
        };
        let Some(next) = self.samples.get(after) else {
            return start;
        };
        // The object of the next sample is not allocated before its time.
        let between = (next.bytes - next.own - start).max(0.0);
        let part = (time.0 - from.0) as f64 / (next.time.0 - from.0) as f64;
        start + between * part
    }
}
