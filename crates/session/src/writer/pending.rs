//! Samples of which not all is known yet.
//!
//! The type of an object is stored after its allocation, and whether it survives is known at the next minor collection,
//! which a program that allocates little may not reach. So a sample can be published provisionally when it is taken:
//! what is known of it stands at the end of the file until the sample itself is recorded.

use std::collections::VecDeque;

use nthbyte_profile::event::{Allocation, Nanos};

/// No more samples than these are pending; further ones are written when they are recorded.
const MOST: usize = 1 << 20;

/// What was published and has not been recorded, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    samples: VecDeque<Allocation>,
    /// Whether the end of the file differs from these samples.
    changed: bool,
}

impl Pending {
    /// A sample was published, or published again, with more that is known of it.
    pub(crate) fn publish(&mut self, sample: Allocation) {
        if self
            .samples
            .back()
            .is_some_and(|newest| sample.time <= newest.time)
        {
            let again = self
                .samples
                .binary_search_by_key(&sample.time, |one| one.time);
            if let Ok(at) = again {
                self.samples[at] = sample;
                self.changed = true;
            }
        } else if self.samples.len() < MOST && self.samples.try_reserve(1).is_ok() {
            self.samples.push_back(sample);
            self.changed = true;
        }
    }

    /// A sample of this time was recorded: neither it nor any before it is pending, for samples are recorded in
    /// the order in which they were published. Those before it that were not recorded are lost.
    pub(crate) fn recorded(&mut self, time: Nanos) {
        while self
            .samples
            .front()
            .is_some_and(|oldest| oldest.time <= time)
        {
            self.samples.pop_front();
        }
    }

    /// How many are pending.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The provisional end of the file was overwritten.
    pub(crate) fn overwritten(&mut self) {
        self.changed = true;
    }

    /// The samples for the end of the file, if that is to be written anew: if one has been pending since this
    /// time. In a program that allocates much, none is pending for long.
    pub(crate) fn take_changed(
        &mut self,
        since: Nanos,
    ) -> Option<impl Iterator<Item = &Allocation>> {
        let oldest = self.samples.front()?;
        if !self.changed || oldest.time > since {
            return None;
        }
        self.changed = false;
        Some(self.samples.iter())
    }
}
