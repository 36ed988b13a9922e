//! Stands for the far end of the ring, and for the file. Records are numbers.

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use nthbyte_profile::event::Nanos;

use super::progress::{LastWords, Progress};
use crate::keeper::Keeper;
use crate::outcome::SessionOutcome;
use crate::process::HostDescriptor;

/// The slots of the ring. No model pushes more records.
const SLOTS: usize = 4;

/// A ring that is never full, with the orderings of rtrb's: a record is written, then the tail is released.
pub(crate) struct Ring {
    slots: [UnsafeCell<u32>; SLOTS],
    tail: AtomicUsize,
}

/// The file's content. loom panics if two threads use it at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) records: Vec<u32>,
    pub(crate) is_ended: bool,
    /// The signal that ended the process.
    pub(crate) signal: Option<&'static str>,
}

/// What the program's threads and the writer thread see of a session.
pub(crate) struct Ends {
    ring: Ring,
    file: UnsafeCell<Content>,
}

// SAFETY: loom checks each use of the cells.
unsafe impl Sync for Ends {}
// SAFETY: as above.
unsafe impl Send for Ends {}

impl Ends {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            ring: Ring {
                slots: std::array::from_fn(|_| UnsafeCell::new(0)),
                tail: AtomicUsize::new(0),
            },
            file: UnsafeCell::new(Content::default()),
        })
    }

    /// Only the recorder calls this.
    pub(crate) fn push(&self, record: u32) {
        let tail = self.ring.tail.load(Relaxed);
        // SAFETY: loom checks that nobody reads the slot.
        self.ring.slots[tail].with_mut(|slot| unsafe { *slot = record });
        self.ring.tail.store(tail + 1, Release);
    }

    /// Reads the file, which must be at rest.
    pub(crate) fn content(&self) -> Content {
        // SAFETY: loom checks that nobody writes.
        self.file.with(|content| unsafe { (*content).clone() })
    }

    fn change(&self, change: impl FnOnce(&mut Content)) {
        // SAFETY: loom checks that nobody else is here.
        self.file
            .with_mut(|content| change(unsafe { &mut *content }));
    }
}

/// The drain: whoever has it may take records and write the file.
pub(crate) struct Drain {
    ends: Arc<Ends>,
    taken: usize,
}

impl Drain {
    pub(crate) fn of(ends: &Arc<Ends>) -> Box<Self> {
        Box::new(Self {
            ends: Arc::clone(ends),
            taken: 0,
        })
    }

    pub(super) const fn enter_thread(&mut self) {}

    pub(super) const fn leave_thread(&mut self) {}

    pub(super) const fn take_stale(&mut self) -> Option<HostDescriptor> {
        None
    }

    pub(super) fn work(&mut self, progress: &Progress) -> bool {
        let tail = self.ends.ring.tail.load(Acquire);
        while self.taken < tail {
            // SAFETY: loom checks that nobody writes the slot.
            let record = self.ends.ring.slots[self.taken].with(|slot| unsafe { *slot });
            self.ends.change(|content| content.records.push(record));
            self.taken += 1;
            progress.go_on();
        }
        false
    }

    pub(super) fn write_out(&mut self, progress: &Progress) {
        self.work(progress);
    }

    pub(super) const fn record_pending(&mut self, _progress: &Progress) {}

    pub(super) fn look(&self) {}

    pub(super) fn abandon_snapshots(&mut self, _progress: &Progress) {}

    pub(super) fn ended_by(&mut self, signal: &'static str, _progress: &Progress) {
        self.ends.change(|content| content.signal = Some(signal));
    }

    pub(super) fn finish(
        mut self,
        progress: &Progress,
        _end: LastWords,
    ) -> (SessionOutcome, Option<HostDescriptor>) {
        self.work(progress);
        self.ends.change(|content| {
            assert!(!std::mem::replace(&mut content.is_ended, true));
        });
        let outcome = SessionOutcome {
            samples: self.taken as u64,
            ..SessionOutcome::default()
        };
        (outcome, None)
    }

    pub(super) const fn rest(&self) -> Duration {
        Duration::MAX
    }

    pub(super) const fn keeper(&self) -> Keeper {
        Keeper
    }

    pub(super) const fn now(&self) -> Nanos {
        Nanos(0)
    }

    pub(super) const fn has_nothing(&self, _progress: &Progress) -> bool {
        false
    }

    pub(super) const fn is_due(&self) -> bool {
        false
    }
}
