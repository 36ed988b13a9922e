//! Whether a thread is inside of the collector.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_rpython::binary::thread_pointer;

/// The thread (its thread pointer) that collects, or sets the nursery; 0 if none does.
static COLLECTING: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread is inside of the collector.
pub fn is_collecting_here() -> bool {
    COLLECTING.load(Relaxed) == thread_pointer()
}

/// Whether a thread is inside of the collector: objects may be on their way.
pub fn is_collecting() -> bool {
    COLLECTING.load(Relaxed) != 0
}

/// Calls `work`, and marks the calling thread as collecting.
pub fn collecting<T>(work: impl FnOnce() -> T) -> T {
    let outside = COLLECTING.swap(thread_pointer(), Relaxed);
    let result = work();
    COLLECTING.store(outside, Relaxed);
    result
}
