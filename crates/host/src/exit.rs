//! The end of a session because the process ends.
//!
//! The thread that has called `exit` may be in a signal handler, which has interrupted `malloc` or this library. So it
//! gives nothing back, and waits for nothing that the C library has a lock for.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// From now on, the process ends.
pub fn begin() {
    HAS_BEGUN.store(true, Relaxed);
}

/// Another thread has forked meanwhile: its child goes on.
pub fn after_fork_in_child() {
    HAS_BEGUN.store(false, Relaxed);
}

/// Whether the process ends.
pub fn has_begun() -> bool {
    HAS_BEGUN.load(Relaxed)
}
