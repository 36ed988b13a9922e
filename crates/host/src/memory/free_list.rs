//! A list of freed blocks, without a lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The blocks have numbers, which are not 0. The number of the block that follows another one lies where a function says
/// that the caller gives: a thread may still read it when another one has got the block, so it is not in the block itself.
pub struct FreeList {
    /// The first block's number in the lower half; 0 is the end. The upper half counts changes, so that a list that has
    /// changed meanwhile is never taken for the same one.
    head: AtomicU64,
}

impl FreeList {
    pub const fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
        }
    }

    /// Takes the block that was put last. Safe in a signal handler.
    #[inline]
    pub fn take<'a>(&self, next: impl Fn(u32) -> &'a AtomicU32) -> Option<u32> {
        let pop = |head: u64| match head as u32 {
            0 => None,
            first => Some(changed(head, next(first).load(Relaxed))),
        };
        let taken = self.head.fetch_update(AcqRel, Acquire, pop);
        taken.ok().map(|head| head as u32)
    }

    /// Puts a block. Safe in a signal handler.
    #[inline]
    pub fn put<'a>(&self, number: u32, next: impl Fn(u32) -> &'a AtomicU32) {
        let push = |head: u64| {
            next(number).store(head as u32, Relaxed);
            Some(changed(head, number))
        };
        let _ = self.head.fetch_update(AcqRel, Acquire, push);
    }
}

/// The head of a list whose first block is another one now.
const fn changed(head: u64, first: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | first as u64
}
