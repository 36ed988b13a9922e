//! Panics must not pass through an interpreter's frames.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::registry;

/// Whether a panic was caught, since a session began.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Runs `work`, which the interpreter has called. If it panics, the session ends: nothing more is recorded, its
/// [`Outcome`](crate::Outcome) says why, and the program goes on. From then on `work` is not run, until
/// another session begins. `None` if it was not run to its end.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    if FAILED.load(Relaxed) {
        return None;
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(payload) => {
            FAILED.store(true, Relaxed);
            registry::slots().for_each(|slot| slot.fail());
            // To drop it may panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// A session begins.
pub(crate) fn reset() {
    FAILED.store(false, Relaxed);
}
