//! Finished events that wait for room in the ring: with a small period, one collection can finish more events than the
//! ring holds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nthbyte_profile::event::{Collection, LostKind, SampleId, TypeId};

use crate::pending::PendingSample;
use nthbyte_session::Recording;

/// At most this many events wait for the ring.
const LONGEST: usize = 1 << 18;
/// Slots of the ring that stay free, for definitions.
const SPARE_SLOTS: usize = 64;
/// The longest time that the end of a session waits for room.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// An event that is complete.
#[derive(Clone, Copy, Debug)]
pub enum Finished {
    /// A sample. It is known whether the object survives, or it will never be known.
    Sample(PendingSample),
    /// A collection.
    Collection(Collection),
}

/// Names types: the profile's number of a type, or of an instance's class, with the numbers of a [`PendingSample`].
pub trait TypeIds {
    /// The number. [`TypeId::UNKNOWN`] if there is no room for a definition.
    fn id(&mut self, recording: &mut Recording<'_>, number: u32, class: Option<u32>) -> TypeId;
}

/// The events that wait for room in the ring, oldest first.
#[derive(Debug, Default)]
pub struct Backlog(VecDeque<Finished>);

impl Backlog {
    /// Without events.
    #[must_use]
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Writes an event to the ring, or keeps it until there is room. Returns the number of a sample that was written.
    pub fn push(
        &mut self,
        finished: Finished,
        recording: &mut Recording<'_>,
        types: &mut impl TypeIds,
    ) -> Option<SampleId> {
        if self.0.is_empty() && recording.room() > SPARE_SLOTS {
            return hand_over(finished, recording, types);
        }
        if self.0.len() < LONGEST && self.0.try_reserve(1).is_ok() {
            self.0.push_back(finished);
        } else {
            let kind = match finished {
                Finished::Sample(_) => LostKind::Allocations,
                Finished::Collection(_) => LostKind::Other,
            };
            recording.lost(kind, 1);
        }
        None
    }

    /// Writes as many waiting events as there is room for.
    pub fn catch_up(&mut self, recording: &mut Recording<'_>, types: &mut impl TypeIds) {
        while !self.0.is_empty() && recording.room() > SPARE_SLOTS {
            if let Some(finished) = self.0.pop_front() {
                hand_over(finished, recording, types);
            }
        }
    }

    /// The number of events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes all waiting events, at the end of the session, with the recordings that `record` begins. `catch_up` writes what there is
/// room for, and returns the number of events that still wait. Returns the number of those that were not written.
pub fn drain<'session>(
    record: impl Fn() -> Option<Recording<'session>>,
    mut catch_up: impl FnMut(&mut Recording<'_>) -> usize,
) -> usize {
    let until = Instant::now() + LONGEST_WAIT;
    let mut left = 0;
    loop {
        // Each recording wakes the writer thread, if that is asleep.
        let Some(mut recording) = record() else {
            return left;
        };
        left = catch_up(&mut recording);
        drop(recording);
        if left == 0 || Instant::now() >= until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hand_over(
    finished: Finished,
    recording: &mut Recording<'_>,
    types: &mut impl TypeIds,
) -> Option<SampleId> {
    match finished {
        Finished::Sample(object) => {
            let type_id = types.id(recording, object.type_number, object.class);
            recording.allocation(object.finish(type_id), object.period)
        }
        Finished::Collection(collection) => {
            recording.collection(collection);
            None
        }
    }
}
