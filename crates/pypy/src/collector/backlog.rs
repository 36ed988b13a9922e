//! Finished events that wait for room in the ring: with a small period, one collection can finish more events than the
//! ring holds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nthbyte_profile::event::{Collection, LostKind};

use super::pending::PendingSample;
use crate::types::Types;
use nthbyte_session::{Recording, Session};

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

/// The events that wait for room in the ring, oldest first.
#[derive(Debug, Default)]
pub struct Backlog(VecDeque<Finished>);

impl Backlog {
    /// Writes an event to the ring, or keeps it until there is room.
    pub fn push(&mut self, finished: Finished, recording: &mut Recording<'_>, types: &mut Types) {
        if self.0.is_empty() && recording.room() > SPARE_SLOTS {
            hand_over(finished, recording, types);
        } else if self.0.len() < LONGEST && self.0.try_reserve(1).is_ok() {
            self.0.push_back(finished);
        } else {
            let kind = match finished {
                Finished::Sample(_) => LostKind::Allocations,
                Finished::Collection(_) => LostKind::Other,
            };
            recording.lost(kind, 1);
        }
    }

    /// Writes as many waiting events as there is room for.
    pub fn catch_up(&mut self, recording: &mut Recording<'_>, types: &mut Types) {
        while !self.0.is_empty() && recording.room() > SPARE_SLOTS {
            if let Some(finished) = self.0.pop_front() {
                hand_over(finished, recording, types);
            }
        }
    }

    /// Writes all waiting events, at the end of the session.
    pub fn drain(&mut self, session: &Session, types: &mut Types) {
        let until = Instant::now() + LONGEST_WAIT;
        while !self.0.is_empty() && Instant::now() < until {
            // Each recording wakes the writer thread, if that is asleep.
            let Some(mut recording) = session.record(LostKind::Other) else {
                break;
            };
            self.catch_up(&mut recording, types);
            drop(recording);
            if !self.0.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        session.lost(LostKind::Allocations, self.0.len() as u64);
    }
}

fn hand_over(finished: Finished, recording: &mut Recording<'_>, types: &mut Types) {
    match finished {
        Finished::Sample(object) => {
            let type_id = types.id(recording, object.type_number, object.class);
            recording.allocation(object.finish(type_id), object.period);
        }
        Finished::Collection(collection) => recording.collection(collection),
    }
}
