//! The ring between the recorder and the writer thread, which follows the rate of events.
//!
//! It begins short: a ring's memory is touched slot by slot, whatever is in it. If the writer thread does not run for long,
//! because the machine is busy, the ring becomes half full. Then a larger one takes its place: its far end travels through
//! the old one, behind all records that are in it. When few records have come for a while, a short one takes its place in turn.

mod lost;
mod record;

use std::mem::take;

use nthbyte_host::memory;
use nthbyte_profile::{Distances, Meta};
use rtrb::{Consumer, Producer, PushError};

pub(crate) use lost::Lost;
pub(crate) use record::{Bulky, Record, text};

/// The ring holds the events of this many bytes, allocated or freed. A program that allocates 1.3 GB per second, and
/// frees as much, produces that many in a tenth of a second while the writer thread does not run.
const BYTES: u64 = 1 << 28;
/// The smallest and largest number of slots at first, of 56 bytes each.
const SLOTS: (u64, u64) = (2048, 32 << 10);
/// Number of slots at first when the period changes.
const SLOTS_AUTO: usize = 4096;
/// The largest number of slots. When every allocation is recorded, it has so many from the start.
const MOST_SLOTS: usize = 1 << 16;
/// A larger ring has so many times as many slots.
const LARGER: usize = 4;

/// The recorder's end.
pub(crate) struct Ring {
    producer: Producer<Record>,
    /// Number of slots at first.
    first: usize,
    /// Records since the last call of [`Ring::wakes`].
    pushed: usize,
}

impl Ring {
    /// The ring of a session with this description, and its far end. `is_auto`: whether the period changes.
    pub(crate) fn new(meta: &Meta, is_auto: bool) -> (Self, Consumer<Record>) {
        let first = slots(meta, is_auto);
        let (producer, far_end) = rtrb::RingBuffer::new(first);
        let ring = Self {
            producer,
            first,
            pushed: 0,
        };
        (ring, far_end)
    }

    /// Number of free slots.
    pub(crate) fn room(&self) -> usize {
        self.producer.slots()
    }

    fn capacity(&self) -> usize {
        self.producer.buffer().capacity()
    }

    /// Whether there is room for a record that must not displace other events.
    pub(crate) fn is_roomy(&self) -> bool {
        self.room() > self.capacity() / 2
    }

    /// Whether there are more records than the largest ring should have.
    pub(crate) fn is_crowded(&self) -> bool {
        self.capacity() >= MOST_SLOTS && !self.is_roomy()
    }

    /// Returns whether the writer thread is to be woken: a quarter of the slots was filled. The record comes back if there is no
    /// room. Inlined, so that the compiler builds the record directly in the ring.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: Record) -> Result<bool, Record> {
        match self.producer.push(record) {
            Ok(()) => {
                self.pushed += 1;
                Ok(self.pushed >= self.capacity() / 4)
            }
            Err(PushError::Full(back)) => Err(back),
        }
    }

    /// Called when the writer thread is woken: makes the ring larger if the thread is behind, and `has_writer`: without a thread,
    /// a larger one would become full, too. `is_after_rest`: because some time has passed since the last time; the ring becomes
    /// short again if few records came in it.
    pub(crate) fn wakes(&mut self, has_writer: bool, is_after_rest: bool) {
        let were_few = take(&mut self.pushed) < self.first / 4;
        let capacity = self.capacity();
        if has_writer && !self.is_roomy() && capacity < MOST_SLOTS {
            self.replace((capacity * LARGER).min(MOST_SLOTS));
        } else if is_after_rest && were_few && capacity > self.first {
            self.replace(self.first);
        }
    }

    /// Lets another ring take the place of this one. Without memory, this one stays.
    #[cold]
    #[inline(never)]
    fn replace(&mut self, slots: usize) {
        if !memory::has(slots * size_of::<Record>()) {
            return;
        }
        let mut place = Vec::new();
        if place.try_reserve_exact(1).is_err() {
            return;
        }
        let (producer, far_end) = rtrb::RingBuffer::new(slots);
        place.push(far_end);
        if self.producer.push(Record::Ring(place)).is_ok() {
            self.producer = producer;
        }
    }
}

fn slots(meta: &Meta, is_auto: bool) -> usize {
    if meta.distances() == Distances::Every {
        return MOST_SLOTS;
    }
    if is_auto {
        return SLOTS_AUTO;
    }
    let (least, most) = SLOTS;
    (BYTES / meta.period().max(1))
        .next_power_of_two()
        .clamp(least, most) as usize
}

/// The size of the ring at first, in bytes.
pub(crate) fn first_bytes(meta: &Meta, is_auto: bool) -> usize {
    slots(meta, is_auto) * size_of::<Record>()
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{Nanos, SampleId};

    use super::*;
    use crate::config::Config;

    fn ring() -> (Ring, Consumer<Record>) {
        let json = r#"{"output": "/x", "period": 16384, "auto": true, "distances": "exponential"}"#;
        let config = Config::parse(json).unwrap();
        let meta = config.meta(nthbyte_profile::Method::CutFreeLists, 1, Vec::new());
        Ring::new(&meta, true)
    }

    /// Pushes so many records with the numbers from `first` on, as the recorder does. Returns how many there was room for.
    fn push(ring: &mut Ring, first: u32, count: u32) -> u32 {
        let push_one = |&number: &u32| match ring.push(Record::Freed(SampleId(number), Nanos(0))) {
            Ok(true) => {
                ring.wakes(true, false);
                true
            }
            pushed => pushed.is_ok(),
        };
        (first..first + count).take_while(push_one).count() as u32
    }

    /// The numbers of all records, in order.
    fn drain(far_end: &mut Consumer<Record>) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Ok(record) = far_end.pop() {
            match record {
                Record::Ring(next) => *far_end = next.into_iter().next().unwrap(),
                Record::Freed(number, _) => numbers.push(number.0),
                _ => panic!(),
            }
        }
        numbers
    }

    #[test]
    fn it_grows_while_nobody_reads_and_keeps_each_record_and_their_order() {
        let (mut ring, mut far_end) = ring();
        // Half of each ring at least is used.
        let pushed = push(&mut ring, 0, 1 << 20);
        assert!(pushed as usize >= MOST_SLOTS + MOST_SLOTS / 8, "{pushed}");
        assert!(ring.is_crowded());
        assert!(drain(&mut far_end).into_iter().eq(0..pushed));
        assert_eq!(push(&mut ring, pushed, 100), 100);
        assert!(drain(&mut far_end).into_iter().eq(pushed..pushed + 100));
    }

    #[test]
    fn it_stays_short_while_the_writer_keeps_up() {
        let (mut ring, mut far_end) = ring();
        for turn in 0..1000 {
            assert_eq!(push(&mut ring, turn, 1000), 1000);
            assert_eq!(drain(&mut far_end).len(), 1000);
        }
        assert_eq!(ring.capacity(), SLOTS_AUTO);
    }

    #[test]
    fn it_is_short_again_after_a_rest() {
        let (mut ring, mut far_end) = ring();
        let pushed = push(&mut ring, 0, 20_000);
        ring.wakes(true, true);
        assert_eq!(ring.capacity(), MOST_SLOTS, "the writer thread is behind");
        let mut numbers = drain(&mut far_end);
        assert_eq!(push(&mut ring, pushed, 2000), 2000);
        ring.wakes(true, true);
        assert_eq!(ring.capacity(), MOST_SLOTS, "many records came");
        numbers.extend(drain(&mut far_end));
        ring.wakes(true, false);
        assert_eq!(ring.capacity(), MOST_SLOTS, "no time has passed");
        ring.wakes(true, true);
        assert_eq!(ring.capacity(), SLOTS_AUTO);
        assert_eq!(push(&mut ring, pushed + 2000, 100), 100);
        numbers.extend(drain(&mut far_end));
        assert!(numbers.into_iter().eq(0..pushed + 2100));
    }
}
