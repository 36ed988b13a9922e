//! The samples in the order of their times, without a sort of all of them.
//!
//! They nearly are: a sample may be recorded a little later than it was taken (see [`crate::event`]), so some follow one that was
//! taken after them. Only these *late* ones are sorted, and merged with the others in each pass. A number for each late one is all
//! the memory.

use crate::event::{Nanos, SampleId};
use crate::samples::Samples;

/// The order of the samples of a profile. It does not refer to them: whoever passes over them says of which samples it is.
#[derive(Clone, Debug)]
pub struct TimeOrder {
    /// The samples that have a later one before them, in the order of their times.
    late: Vec<SampleId>,
}

impl TimeOrder {
    /// Of these samples.
    #[must_use]
    pub fn of(samples: &Samples) -> Self {
        let mut latest = Nanos(0);
        let is_late = |&id: &SampleId| {
            let time = samples.time(id);
            latest = latest.max(time);
            time < latest
        };
        let mut late: Vec<SampleId> = samples.ids().filter(is_late).collect();
        // The sort is stable: samples of one time keep their order.
        late.sort_by_key(|&id| samples.time(id));
        Self { late }
    }

    /// The samples with their times, in the order of time; samples of one time keep their order.
    pub fn pass<'a>(&'a self, samples: &'a Samples) -> Pass<'a> {
        let mut pass = Pass {
            samples,
            late: &self.late,
            next: 0,
            on_time: None,
            latest: Nanos(0),
        };
        pass.find();
        pass
    }
}

/// A pass over samples in the order of their times.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    samples: &'a Samples,
    late: &'a [SampleId],
    /// The number of the next sample to look at.
    next: u32,
    /// The next one that is not late.
    on_time: Option<(Nanos, SampleId)>,
    latest: Nanos,
}

impl Pass<'_> {
    /// Finds the next one that is not late.
    #[inline]
    fn find(&mut self) {
        self.on_time = None;
        while (self.next as usize) < self.samples.len() {
            let id = SampleId(self.next);
            self.next += 1;
            let time = self.samples.time(id);
            if time >= self.latest {
                self.latest = time;
                self.on_time = Some((time, id));
                return;
            }
        }
    }
}

impl Iterator for Pass<'_> {
    type Item = (Nanos, SampleId);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some((&late, rest)) = self.late.split_first() {
            let late = (self.samples.time(late), late);
            if self.on_time.is_none_or(|on_time| late < on_time) {
                self.late = rest;
                return Some(late);
            }
        }
        let found = self.on_time?;
        self.find();
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::SamplingId;
    use crate::synthetic;

    proptest! {
        #[test]
        fn a_pass_is_a_stable_sort(times in prop::collection::vec(0_u64..50, 0..80)) {
            let mut samples = Samples::default();
            for &time in &times {
                samples.push(synthetic::sample(Nanos(time), 16, SamplingId(0)));
            }
            let mut sorted: Vec<SampleId> = samples.ids().collect();
            sorted.sort_by_key(|&id| samples.time(id));
            let order = TimeOrder::of(&samples);
            let passed: Vec<(Nanos, SampleId)> = order.pass(&samples).collect();
            prop_assert_eq!(
                passed,
                sorted.iter().map(|&id| (samples.time(id), id)).collect::<Vec<_>>()
            );
        }
    }
}
