//! Memory totals: of the heap, and of the process.

use std::ffi::c_void;

use nthbyte_heap::{Heap, Statistics};
use nthbyte_profile::event::{Memory, Nanos};

use nthbyte_session::process::ResidentSet;

/// Between collections, totals are taken with a sample when the last are older than this.
const MEMORY_AGE: Nanos = Nanos(100_000_000);

/// Takes totals.
pub struct Totals {
    /// The heap, as the context of its functions.
    heap: *mut c_void,
    rss: ResidentSet,
    taken: Option<Nanos>,
    /// What the heap had counted when this process was forked off.
    allocated_before: u64,
}

impl Totals {
    /// Of this heap.
    #[must_use]
    pub fn of(heap: *mut c_void) -> Self {
        Self {
            heap,
            rss: ResidentSet::default(),
            taken: None,
            allocated_before: 0,
        }
    }

    /// Begins anew in the child of a fork, whose heap has counted what the parent allocated.
    pub fn begin_in_child(&mut self) {
        *self = Self::of(self.heap);
        self.allocated_before = self.statistics().allocated;
    }

    /// What this process allocated, in blocks, of what the heap has counted.
    #[must_use]
    pub const fn own(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.allocated_before)
    }

    /// Heap memory in blocks in use, in bytes.
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        self.statistics().in_use as u64
    }

    /// Whether it is time to take totals again.
    #[must_use]
    pub fn are_due(&self, now: Nanos) -> bool {
        self.taken
            .is_none_or(|taken| now.0.saturating_sub(taken.0) > MEMORY_AGE.0)
    }

    /// Takes all totals. `requested` says how much was asked for of so many bytes in blocks.
    pub fn take(&mut self, now: Nanos, requested: impl Fn(u64) -> u64) -> Memory {
        self.taken = Some(now);
        let heap = self.statistics();
        Memory {
            time: now,
            heap_used: Some(heap.in_use as u64),
            heap_reserved: Some(heap.reserved as u64),
            rss: self.rss.size(now),
            allocated: Some(requested(self.own(heap.allocated))),
        }
    }

    fn statistics(&self) -> Statistics {
        // SAFETY: totals are taken by the holder of the GIL; an observer may call the heap.
        unsafe { Heap::statistics(self.heap.cast()) }
    }
}
