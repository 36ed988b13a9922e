//! Arenas with free pages, ordered by their number of free pages.

use super::header::Arena;
use crate::geometry::PAGES_PER_ARENA;
use core::ptr::null_mut;

/// A queue for each number of free pages; the arena that was queued last is first.
pub struct Queues {
    /// Index i has the arenas with i + 1 free pages, and index 0 also the arenas without free
    /// pages.
    pub heads: [*mut Arena; PAGES_PER_ARENA as usize],
    /// Bit i: queue i is not empty.
    filled: u128,
}

impl Queues {
    /// Empty queues.
    pub const fn new() -> Self {
        Self {
            heads: [null_mut(); PAGES_PER_ARENA as usize],
            filled: 0,
        }
    }

    /// Whether there is no arena.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// An arena with the fewest free pages. At least one queue is not empty.
    pub fn fullest(&self) -> *mut Arena {
        self.heads[self.filled.trailing_zeros() as usize]
    }

    fn index(arena: &Arena) -> usize {
        (arena.free.count_ones() as usize).saturating_sub(1)
    }

    /// Puts an arena at the front of its queue.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    pub unsafe fn link(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller; queued arenas are mapped.
        unsafe {
            let queue = Self::index(&*arena);
            let head = self.heads[queue];
            (*arena).previous = null_mut();
            (*arena).next = head;
            if !head.is_null() {
                (*head).previous = arena;
            }
            self.heads[queue] = arena;
            self.filled |= 1 << queue;
        }
    }

    /// Removes an arena from its queue.
    ///
    /// # Safety
    /// The arena is in the queue of its number of free pages.
    pub unsafe fn unlink(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller; queued arenas are mapped.
        unsafe {
            let queue = Self::index(&*arena);
            let (previous, next) = ((*arena).previous, (*arena).next);
            if previous.is_null() {
                self.heads[queue] = next;
                if next.is_null() {
                    self.filled &= !(1 << queue);
                }
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}
