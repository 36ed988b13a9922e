//! Memory totals of the heap.

use std::ffi::c_void;

use nthbyte_heap::{Heap, HeapStatistics};
use nthbyte_profile::event::{Memory, Nanos};
use nthbyte_session::Counted;

use crate::api::FREE_THREADED;

/// The age at which totals are taken again with a sample, between collections.
const MEMORY_AGE: Nanos = Nanos(100_000_000);
/// The age at which totals are taken again after a collection that has changed little.
const MEMORY_AGE_AT_COLLECTIONS: Nanos = Nanos(10_000_000);
/// After a collection that has changed the bytes in use by more than this part, they are taken at once.
const WORTH_TAKING: f64 = 0.01;

/// Takes memory totals.
pub struct Totals {
    /// The heap, as the context that its functions take.
    heap: *mut c_void,
    /// When they were last taken, and the bytes in use then.
    taken: Option<(Nanos, u64)>,
    /// The heap's counts of allocated bytes and of lost samples when this process was forked.
    allocated_before: u64,
    lost_before: u64,
}

/// What a process did itself, without what its parent did before the fork.
pub struct Own {
    /// Bytes of the blocks that it took, and the part of them that it requested.
    pub counted: Counted,
    /// Samples that the heap has lost.
    pub lost: u64,
}

/// Bytes that only our own heap counts.
#[must_use]
pub fn known(bytes: u64) -> Option<u64> {
    (!FREE_THREADED).then_some(bytes)
}

/// What was counted in mimalloc, in a build without the GIL.
#[must_use]
pub fn in_mimalloc(counted: nthbyte_mimalloc::Statistics) -> HeapStatistics {
    HeapStatistics {
        allocated: counted.bytes,
        lost: counted.lost,
        ..HeapStatistics::default()
    }
}

impl Totals {
    /// The totals of this heap.
    #[must_use]
    pub fn of(heap: *mut c_void) -> Self {
        Self {
            heap,
            taken: None,
            allocated_before: 0,
            lost_before: 0,
        }
    }

    /// Called in the child of a fork: the heap's counts include the parent's.
    pub fn begin_in_child(&mut self) {
        let before = self.statistics();
        *self = Self::of(self.heap);
        (self.allocated_before, self.lost_before) = (before.allocated, before.lost);
    }

    /// The bytes that this process allocated, in blocks, out of the heap's count.
    #[must_use]
    pub const fn own(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.allocated_before)
    }

    /// The samples that this process lost, out of the heap's count.
    #[must_use]
    pub const fn own_lost(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.lost_before)
    }

    /// Bytes of all blocks in use: of small ones, which the heap counts, and of large ones, which it estimates from their
    /// samples. Without the GIL they are not counted, see [`known`].
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        if FREE_THREADED {
            return 0;
        }
        // SAFETY: as in `statistics`.
        unsafe { Heap::in_use(self.heap.cast()) }
    }

    /// Whether the last totals are old enough to take new ones.
    #[must_use]
    pub fn are_due(&self, now: Nanos) -> bool {
        self.are_older(now, MEMORY_AGE)
    }

    /// The same for the end of a collection, after which `used` bytes are in use. There may be thousands a second.
    #[must_use]
    pub fn are_due_after_collection(&self, now: Nanos, used: u64) -> bool {
        let has_changed =
            |(_, before): (Nanos, u64)| used.abs_diff(before) as f64 > WORTH_TAKING * before as f64;
        self.are_older(now, MEMORY_AGE_AT_COLLECTIONS) || self.taken.is_some_and(has_changed)
    }

    fn are_older(&self, now: Nanos, age: Nanos) -> bool {
        self.taken
            .is_none_or(|(taken, _)| now.0.saturating_sub(taken.0) > age.0)
    }

    /// Takes all totals. `requested` converts a number of bytes in blocks into the bytes that the program asked for.
    pub fn take(&mut self, now: Nanos, requested: impl Fn(u64) -> u64) -> Memory {
        let (heap, used) = (self.statistics(), self.heap_used());
        self.taken = Some((now, used));
        Memory {
            time: now,
            heap_used: known(used),
            // Arenas of small blocks, and the large blocks, which have memory of their own.
            heap_reserved: known(heap.reserved as u64 + heap.in_use_large),
            // The writer thread reads the resident set.
            rss: None,
            allocated: Some(requested(self.own(heap.allocated))),
            peak_rss: None,
        }
    }

    fn statistics(&self) -> HeapStatistics {
        if FREE_THREADED {
            return in_mimalloc(nthbyte_mimalloc::statistics());
        }
        // SAFETY: totals are taken by the holder of the GIL; an observer may call the heap.
        unsafe { Heap::statistics(self.heap.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parent_has_counted_is_not_the_childs() {
        let mut totals = Totals::of(std::ptr::null_mut());
        assert_eq!((totals.own(150), totals.own_lost(5)), (150, 5));
        (totals.allocated_before, totals.lost_before) = (100, 2);
        assert_eq!((totals.own(150), totals.own_lost(5)), (50, 3));
    }

    #[test]
    fn totals_are_taken_again_when_they_are_old_or_have_changed() {
        let mut totals = Totals::of(std::ptr::null_mut());
        assert!(totals.are_due_after_collection(Nanos(0), 0));
        totals.taken = Some((Nanos(1_000_000_000), 1_000_000));
        for (after, used, is_due) in [
            (0, 1_000_000, false),
            (9_999_999, 1_009_999, false),
            (9_999_999, 990_001, false),
            (0, 1_010_001, true),
            (0, 989_999, true),
            (10_000_001, 1_000_000, true),
        ] {
            let now = Nanos(1_000_000_000 + after);
            assert_eq!(totals.are_due_after_collection(now, used), is_due);
        }
    }
}
