//! What the agent's observer is told of, and whose requests it is not told of.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::AtomicFn;
use nthbyte_host::preload::{MOST_RANGES, NOT_INTERESTED, NativeObserver, NativeSettings, Request};

// The functions of the observer.
static SAMPLED: AtomicFn<unsafe extern "C" fn(&Request) -> u64> = AtomicFn::none();
static FREED: AtomicFn<unsafe extern "C" fn(u64)> = AtomicFn::none();
static LOOK: AtomicFn<unsafe extern "C" fn(u64)> = AtomicFn::none();
static UNMAP: AtomicFn<unsafe extern "C" fn(usize, usize) -> bool> = AtomicFn::none();
/// Starts and ends of excluded code.
static EXCLUDED: [[AtomicUsize; 2]; MOST_RANGES] =
    [const { [const { AtomicUsize::new(0) }; 2] }; MOST_RANGES];

/// Makes the reports go to the observer of a session.
pub fn go_to(settings: &NativeSettings) {
    for (place, range) in EXCLUDED.iter().zip(settings.excluded) {
        place[0].store(range[0], Relaxed);
        place[1].store(range[1], Relaxed);
    }
    let NativeObserver {
        sampled,
        freed,
        look,
        unmap,
    } = settings.observer;
    SAMPLED.set(sampled);
    FREED.set(freed);
    LOOK.set(look);
    UNMAP.set(unmap);
}

/// Code of an allocator whose `operator new` is replaced. Some of them call its `aligned_alloc`: one request of the program.
static ALLOCATOR: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Excludes the requests that an allocator makes of itself.
#[cfg(not(test))]
pub fn exclude_calls_of(allocator: std::ops::Range<usize>) {
    ALLOCATOR[0].store(allocator.start, Relaxed);
    ALLOCATOR[1].store(allocator.end, Relaxed);
}

/// Whether a request of this code is not the program's.
pub fn is_excluded(caller: usize) -> bool {
    EXCLUDED
        .iter()
        .chain([&ALLOCATOR])
        .any(|range| caller >= range[0].load(Relaxed) && caller < range[1].load(Relaxed))
}

/// Reports a sampled request. Returns its token.
pub fn sampled(request: &Request) -> u64 {
    // SAFETY: the observer's function, with its argument.
    SAMPLED
        .get()
        .map_or(NOT_INTERESTED, |sampled| unsafe { sampled(request) })
}

/// Reports that sampled memory is freed.
pub fn freed(token: u64) {
    if let Some(freed) = FREED.get() {
        // SAFETY: the observer's function, with a token of its own.
        unsafe { freed(token) };
    }
}

/// Reports that memory that counts with its touched part is about to be freed or resized.
pub fn look(token: u64) {
    if let Some(look) = LOOK.get() {
        // SAFETY: as above.
        unsafe { look(token) };
    }
}

/// Reports that addresses are about to be unmapped. Returns whether that was noted.
pub fn unmap(start: usize, size: usize) -> bool {
    // SAFETY: the observer's function, with any addresses.
    UNMAP
        .get()
        .is_some_and(|unmap| unsafe { unmap(start, size) })
}
