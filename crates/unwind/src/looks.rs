//! When the writer thread looks for modules: what walks have met since the last look.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A walk has met an address in no known module, and its sample waits.
static WANTED: AtomicBool = AtomicBool::new(false);
/// There was a walk since the last look.
static WALKED: AtomicBool = AtomicBool::new(false);

/// The number of looks that have begun.
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// Called by a walk: `is_known` says whether all of its addresses are in known modules, or known to be in none.
#[inline]
pub(crate) fn walked(is_known: bool) {
    if !WALKED.load(Relaxed) {
        WALKED.store(true, Relaxed);
    }
    if !is_known {
        WANTED.store(true, Release);
    }
}

/// The number of the last look that has begun. Only the thread that uses the watch begins one.
pub(crate) fn last() -> u64 {
    LOOKS.load(Acquire)
}

/// Begins a look: a module loaded from here on may be missing in it.
pub(crate) fn begin() {
    WALKED.store(false, Relaxed);
    LOOKS.fetch_add(1, AcqRel);
}

/// Whether there was a walk since the last look.
pub(crate) fn has_walked() -> bool {
    WALKED.load(Relaxed)
}

/// Whether a sample waits for a look. It does not any more.
pub(crate) fn take_wanted() -> bool {
    WANTED.swap(false, Acquire)
}

/// Makes a sample wait for another look.
pub(crate) fn want() {
    WANTED.store(true, Release);
}
