//! Pending samples: some of their details are not known yet.
//!
//! An object's type is stored after its allocation. Whether the object survives is known at the next minor collection,
//! which a program with few allocations may not reach. So a host can publish a sample provisionally when it takes it:
//! the end of the file contains the known details until the sample itself is recorded.

use std::collections::VecDeque;

use nthbyte_profile::event::{Allocation, Event, Nanos, SourceId};

/// The limit of pending samples. Further samples are written only when they are recorded.
const MOST: usize = 1 << 20;

/// Published samples that are not recorded yet, oldest first, with the period of each. They are of one source: the
/// interpreter's memory.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    samples: VecDeque<(Allocation, u64)>,
    /// Whether these samples differ from those at the end of the file.
    changed: bool,
}

impl Pending {
    /// Adds a sample, or replaces it if it is published again with more details.
    pub(crate) fn publish(&mut self, sample: Allocation, period: u64) {
        if self
            .samples
            .back()
            .is_some_and(|(newest, _)| sample.time <= newest.time)
        {
            let again = self
                .samples
                .binary_search_by_key(&sample.time, |(one, _)| one.time);
            if let Ok(at) = again {
                self.samples[at] = (sample, period);
                self.changed = true;
            }
        } else if self.samples.len() < MOST && self.samples.try_reserve(1).is_ok() {
            self.samples.push_back((sample, period));
            self.changed = true;
        }
    }

    /// Called when the sample of this time is recorded. Samples are recorded in the order in which they were published,
    /// so this sample and all before it are no longer pending. Earlier samples that were not recorded are lost.
    pub(crate) fn recorded(&mut self, time: Nanos) {
        while self
            .samples
            .front()
            .is_some_and(|(oldest, _)| oldest.time <= time)
        {
            self.samples.pop_front();
        }
    }

    /// The number of pending samples.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns all pending samples. None is pending afterwards.
    pub(crate) fn take_all(&mut self) -> VecDeque<(Allocation, u64)> {
        std::mem::take(&mut self.samples)
    }

    /// Called when the provisional end of the file was overwritten.
    pub(crate) fn overwritten(&mut self) {
        self.changed = true;
    }

    /// The samples for the end of the file, if the end must be written again because a sample has been pending since
    /// this time. In a program with many allocations, no sample is pending for long.
    pub(crate) fn take_changed(
        &mut self,
        since: Nanos,
    ) -> Option<impl Iterator<Item = &(Allocation, u64)>> {
        let (oldest, _) = self.samples.front()?;
        if !self.changed || oldest.time > since {
            return None;
        }
        self.changed = false;
        Some(self.samples.iter())
    }
}

/// The events of pending samples: each sample, and before it the period of its source, if the sample before has another
/// one. `periods` are those in force where the events begin.
pub(super) fn with_periods<'a>(
    samples: impl Iterator<Item = &'a (Allocation, u64)>,
    periods: &[u64],
) -> impl Iterator<Item = Event<'static>> {
    let first = periods.get(SourceId::ALLOCATIONS.index()).copied();
    let mut last = first.unwrap_or_default();
    samples.flat_map(move |&(sample, period)| {
        let changes = std::mem::replace(&mut last, period) != period;
        let change = changes.then_some(Event::Period(sample.source, period));
        change.into_iter().chain([Event::Allocation(sample)])
    })
}
