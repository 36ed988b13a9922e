//! Samples of which not all is known yet.
//!
//! The type of an object can be told only after its allocation, and PyPy tells what became of it at the
//! next minor collection, which a program that allocates little may not live to see. So a sample can be
//! announced when it is taken: what is known of it waits here, and stands at the end of the file until
//! the sample itself is recorded.

use std::collections::VecDeque;

use nthbyte_profile::event::{Allocation, Nanos};

/// No more samples wait than these; further ones are written when they are recorded.
const MOST: usize = 1 << 20;

/// What was announced and has not been recorded, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    samples: VecDeque<Allocation>,
    /// Whether the end of the file is another than these samples would make.
    changed: bool,
}

impl Waiting {
    /// A sample was announced, or announced again, with more that is known of it.
    pub(super) fn announce(&mut self, sample: Allocation) {
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

    /// A sample of this time was recorded: it and all before it wait no more, for samples are recorded in
    /// the order in which they were announced. Those before it that were not recorded are lost.
    pub(super) fn recorded(&mut self, time: Nanos) {
        while self
            .samples
            .front()
            .is_some_and(|oldest| oldest.time <= time)
        {
            self.samples.pop_front();
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The end of the file has gone.
    pub(super) fn overwritten(&mut self) {
        self.changed = true;
    }

    /// The samples for the end of the file, if that is to be written anew: if one has waited since this
    /// time. In a program that allocates much, none waits long.
    pub(super) fn take_changed(
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
