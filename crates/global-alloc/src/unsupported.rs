//! Other systems: requests are passed on, and a session does not start.

use std::alloc::{GlobalAlloc, Layout};
use std::io;
use std::path::PathBuf;

use crate::{Options, Outcome, Sampled};

// SAFETY: each request is passed on as it is.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Sampled<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { self.inner.realloc(block, layout, size) }
    }
}

pub(crate) fn start(_options: Options) -> io::Result<PathBuf> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "nthbyte samples on Linux with the GNU C library only",
    ))
}

pub(crate) fn stop() -> Outcome {
    Outcome::default()
}
