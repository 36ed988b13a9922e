//! Stops panics before they reach an interpreter's frames.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::registry;

/// Whether a panic was caught since the last session began.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Runs `work` on behalf of the interpreter. If it panics, the session ends: nothing more is recorded, its
/// [`SessionOutcome`](crate::SessionOutcome) says why, and the program continues. After that, `work` is not run until another session
/// begins. Returns `None` if `work` did not run to its end.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    if FAILED.load(Relaxed) {
        return None;
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(payload) => {
            FAILED.store(true, Relaxed);
            registry::slots().for_each(|slot| slot.fail());
            // Dropping the payload may panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Called when a session begins.
pub(crate) fn reset() {
    FAILED.store(false, Relaxed);
}
