//! Where arenas with free pages wait: a page is taken from the fullest.

use core::ptr::null_mut;

use super::{Arena, PAGES};

/// Arenas by their number of free pages, the most recently queued one in front.
pub struct Queues {
    /// Index i holds the arenas with i + 1 free pages, and index 0 also those with none.
    pub heads: [*mut Arena; PAGES as usize],
    /// Bit i: queue i is not empty.
    filled: u128,
}

impl Queues {
    /// No arenas.
    pub const fn new() -> Self {
        Self {
            heads: [null_mut(); PAGES as usize],
            filled: 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// An arena with the fewest free pages. The queues are not all empty.
    pub fn fullest(&self) -> *mut Arena {
        self.heads[self.filled.trailing_zeros() as usize]
    }

    fn index(arena: &Arena) -> usize {
        (arena.free.count_ones() as usize).saturating_sub(1)
    }

    /// Queues an arena, in front.
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

    /// Takes an arena out of its queue.
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
