//! The thread that runs the cycle collector, for the signal handler.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicUsize};

use nthbyte_session::ticks::TICKS;

use crate::api::Gil;
use crate::layout::{Layout, UNUSED};
use nthbyte_host::process::field;

/// `pthread_self` of the thread; 0 if no collection runs.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The frame that the collection interrupted.
static FRAME: AtomicUsize = AtomicUsize::new(0);
static GENERATION: AtomicU8 = AtomicU8::new(0);

/// A running collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The frame that it interrupted. Frames inside of it belong to finalizers.
    pub frame: usize,
    /// The oldest generation that is collected.
    pub generation: u8,
}

/// Called when a collection starts in the calling thread.
pub fn collection_started(gil: &Gil, layout: &Layout, generation: u8) {
    if !TICKS.are_wanted() {
        return;
    }
    // SAFETY: the GIL is held, so the thread state is live, and the layout was verified.
    let frame = unsafe {
        let state = (gil.api().PyThreadState_GetUnchecked)() as usize;
        if state == 0 {
            return;
        }
        let holder = match layout.thread_cframe {
            UNUSED => state,
            offset => field::<usize>(state, offset),
        };
        field::<usize>(holder, layout.current_frame)
    };
    FRAME.store(frame, Relaxed);
    GENERATION.store(generation, Relaxed);
    THREAD.store(this_thread(), Release);
}

/// Called when a collection has ended, and when a session begins.
pub fn collection_ended() {
    THREAD.store(0, Release);
}

/// The collection that the calling thread runs. Safe in a signal handler.
pub fn here() -> Option<Collection> {
    (THREAD.load(Acquire) == this_thread()).then(|| Collection {
        frame: FRAME.load(Relaxed),
        generation: GENERATION.load(Relaxed),
    })
}

fn this_thread() -> usize {
    // SAFETY: no preconditions. It reads a register, and is safe in a signal handler.
    unsafe { libc::pthread_self() as usize }
}
