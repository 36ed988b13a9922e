//! Collections and memory totals (section 3.6 of the paper).
//!
//! Minor collections are timed by the hook. The steps of a major collection, and what is left after it,
//! are told by PyPy through `gc.hooks`, from Python code that runs a little later and without the
//! interpreter's lock while it calls us: so they wait in a queue for whoever holds the lock.

use std::sync::Mutex;

use nthbyte_profile::event::{Collection, CollectionKind, MajorPhase, Memory, Nanos, ThreadId};

use super::totals::{self, Totals};
use crate::memory::ResidentSet;
use crate::session::Recorder;

/// Memory totals are written at most this often.
const EVERY: Nanos = Nanos(20_000_000);
/// While the collector sweeps it counts the old objects anew, from nothing. A total that has fallen is not believed
/// before the sweep was told to be over, or for so long.
const SWEEP: Nanos = Nanos(2_000_000_000);
/// More steps than these are not kept waiting.
const QUEUE: usize = 4096;

/// Something that `gc.hooks` told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// When it was told: nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_nanos: u64,
    /// How long it took.
    pub duration: u64,
    /// Phase of the step (0 to 3), or 4 for a whole major collection.
    pub phase: u8,
    /// Memory in use before and after, where known.
    pub bytes: (Option<u64>, Option<u64>),
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

/// Puts an event into the queue.
pub fn tell(told: Told) {
    if let Ok(mut queue) = TOLD.lock()
        && queue.len() < QUEUE
    {
        queue.push(told);
    }
}

/// What one session has seen of the collector.
#[derive(Debug)]
pub struct Statistics {
    totals: Option<Totals>,
    nursery: Option<usize>,
    written: Nanos,
    rss: ResidentSet,
    in_arenas: InArenas,
}

/// Bytes of old objects in arenas, as they were before a sweep that is under way.
#[derive(Debug, Default)]
struct InArenas {
    bytes: u64,
    /// Since when the collector has had a smaller number.
    fallen: Option<Nanos>,
    /// A sweep has ended since the last reading.
    is_swept: bool,
}

impl InArenas {
    fn read(&mut self, now: Nanos, bytes: u64) -> u64 {
        let is_swept = std::mem::take(&mut self.is_swept);
        if bytes < self.bytes && !is_swept {
            let fallen = *self.fallen.get_or_insert(now);
            if now.0.saturating_sub(fallen.0) < SWEEP.0 {
                return self.bytes;
            }
        }
        (self.bytes, self.fallen) = (bytes, None);
        bytes
    }
}

impl Statistics {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(nursery_size: Option<usize>) -> Self {
        Self {
            totals: None,
            nursery: nursery_size,
            written: Nanos(0),
            rss: ResidentSet::default(),
            in_arenas: InArenas::default(),
        }
    }

    /// Forgets readings; their times are of another session.
    pub fn forget(&mut self) {
        *self = Self {
            totals: self.totals,
            ..Self::new(self.nursery)
        };
    }

    /// Records what `gc.hooks` told since the last call.
    pub fn steps(&mut self, recorder: &mut Recorder) {
        let Ok(mut queue) = TOLD.try_lock() else {
            return;
        };
        for told in queue.drain(..) {
            self.in_arenas.is_swept |= told.phase >= 3;
            let kind = match told.phase {
                0 => CollectionKind::MajorStep(MajorPhase::Scanning),
                1 => CollectionKind::MajorStep(MajorPhase::Marking),
                2 => CollectionKind::MajorStep(MajorPhase::Sweeping),
                3 => CollectionKind::MajorStep(MajorPhase::Finalizing),
                _ => CollectionKind::Major,
            };
            recorder.collection(Collection {
                start: recorder.at(told.monotonic_nanos.saturating_sub(told.duration)),
                duration: Nanos(told.duration),
                thread: ThreadId(0),
                kind,
                freed_objects: None,
                bytes_before: told.bytes.0,
                bytes_after: told.bytes.1,
            });
        }
    }

    /// Records memory totals, now and then.
    pub fn memory(&mut self, recorder: &mut Recorder, now: Nanos, allocated: u64) {
        if self.written != Nanos(0) && now.0.saturating_sub(self.written.0) < EVERY.0 {
            return;
        }
        self.written = now;
        self.totals = self.totals.or_else(totals::found);
        // SAFETY: the words were found inside structs of the collector, which are never freed.
        let read = |address: usize| unsafe { (address as *const u64).read() };
        let used = self
            .totals
            .map(|totals| (read(totals.in_arenas), read(totals.alone)))
            .map(|(in_arenas, alone)| (self.in_arenas.read(now, in_arenas), alone));
        let arenas = self.totals.and_then(|totals| totals.arenas.map(read));
        let sum = |(one, other): (u64, u64)| one.saturating_add(other);
        let nursery = self.nursery.unwrap_or(0) as u64;
        recorder.memory(Memory {
            time: now,
            heap_used: used.map(sum),
            heap_reserved: arenas
                .zip(used)
                .map(|(arenas, (_, alone))| sum((arenas + nursery, alone))),
            rss: self.rss.size(now),
            allocated: Some(allocated),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_does_not_show() {
        let mut arenas = InArenas::default();
        let mut now = 0;
        let mut read = |arenas: &mut InArenas, bytes| {
            now += EVERY.0;
            arenas.read(Nanos(now), bytes)
        };
        assert_eq!(read(&mut arenas, 50), 50);
        assert_eq!(read(&mut arenas, 60), 60);
        assert_eq!([0, 10, 40].map(|bytes| read(&mut arenas, bytes)), [60; 3]);
        arenas.is_swept = true;
        assert_eq!(read(&mut arenas, 42), 42);
        assert_eq!(read(&mut arenas, 41), 42);
        // Nobody tells of the end.
        let held = (0..1000)
            .take_while(|_| read(&mut arenas, 41) == 42)
            .count();
        assert_eq!(held as u64, SWEEP.0 / EVERY.0 - 1);
        assert_eq!(read(&mut arenas, 41), 41);
    }
}
