//! What each request runs. `tests/instructions.rs` counts it.

use std::alloc::{GlobalAlloc, Layout};

use super::slow::{self, Way};
use super::{marks, thread};
use crate::Sampled;

/// Subtracts a request from the countdown `c` of the thread, which is at least 1, or 0 in a new thread. Whether the
/// request may have a sample point: if its size `s >= c`. On x86-64, one subtraction in memory and one jump do both.
#[inline(always)]
fn is_due(size: usize) -> bool {
    let thread = thread::current();
    // SAFETY: the calling thread's state.
    unsafe {
        let before = (*thread).countdown;
        (*thread).countdown = before.wrapping_sub(size as u64);
        size as u64 >= before
    }
}

// SAFETY: each block is the inner allocator's, and goes back to it with the layout that it was asked for: see `marks`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Sampled<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe {
            if is_due(layout.size()) {
                return slow::alloc(layout.size(), layout.align(), Way::Alloc, &self.inner);
            }
            self.inner.alloc(layout)
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe {
            if is_due(layout.size()) {
                return slow::alloc(layout.size(), layout.align(), Way::AllocZeroed, &self.inner);
            }
            self.inner.alloc_zeroed(layout)
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe {
            if marks::may_be_sampled(block, layout.size()) {
                return slow::dealloc(block, layout.size(), layout.align(), &self.inner);
            }
            self.inner.dealloc(block, layout);
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe {
            if is_due(size) {
                return slow::realloc_due(block, layout.size(), layout.align(), size, &self.inner);
            }
            if marks::may_be_sampled(block, layout.size()) {
                return slow::realloc(block, layout.size(), layout.align(), size, &self.inner);
            }
            self.inner.realloc(block, layout, size)
        }
    }
}
