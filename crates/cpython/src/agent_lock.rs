//! Who has the agent in a build without the GIL, where many threads sample at once.
//!
//! Whoever has it runs no Python code, waits for nothing but the session's lock, for a bounded time, and gives it back before the
//! thread can be stopped for a collection.

use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nthbyte_host::lock::{Lock, LockHolder};

use crate::api::FREE_THREADED;

static LOCK: Lock = Lock::new(AtomicUsize::new(0));
/// Whether another thread had the agent when this process was forked: it may be half changed.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);
static IS_SAID: AtomicBool = AtomicBool::new(false);
static IS_BEING_CREATED: AtomicBool = AtomicBool::new(false);

/// So often a thread waits for the agent that must not go on without it: for a second at most.
const TRIES: usize = 50;

/// Whether the agent cannot be used in this process.
pub fn is_broken() -> bool {
    IS_BROKEN.load(Relaxed)
}

/// True once in a process.
pub fn is_first_to_say() -> bool {
    !IS_SAID.swap(true, Relaxed)
}

/// Takes the agent. Returns false if the calling thread has it already, or another one does not give it back in time.
pub fn acquire() -> bool {
    !IS_BROKEN.load(Relaxed) && LOCK.acquire()
}

/// Gives it back.
pub fn release() {
    LOCK.release();
}

/// Does what needs the agent, again and again if another thread has it for long. Returns whether it was done. With a GIL, there is
/// no other thread.
pub fn insist(mut work: impl FnMut() -> bool) -> bool {
    let tries = if FREE_THREADED && !IS_BROKEN.load(Relaxed) && !LOCK.is_held_by_caller() {
        TRIES
    } else {
        1
    };
    (0..tries).any(|_| work())
}

/// The right to create the agent.
pub struct Creation(());

impl Creation {
    /// `None` while another thread creates it.
    pub fn begin() -> Option<Self> {
        (!IS_BEING_CREATED.swap(true, Acquire)).then_some(Self(()))
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        IS_BEING_CREATED.store(false, Release);
    }
}

/// Sees to it that nobody has the agent while this process is copied. Called after the session has done the same for itself: what is
/// registered last runs first, and a thread with the agent may wait for the session.
pub fn watch_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
    });
}

extern "C" fn before_fork() {
    // In the child, the other thread would have it for ever.
    let tries = if LOCK.is_held_by_caller() { 1 } else { TRIES };
    let _ = (0..tries).any(|_| LOCK.acquire_for_fork());
}

extern "C" fn in_parent() {
    LOCK.release_in_parent();
}

extern "C" fn in_child() {
    if LOCK.release_in_child() == LockHolder::Other {
        IS_BROKEN.store(true, Relaxed);
        IS_SAID.store(false, Relaxed);
    }
    IS_BEING_CREATED.store(false, Relaxed);
    // SAFETY: the child has one thread.
    unsafe { nthbyte_mimalloc::forked(nthbyte_session::forks()) };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fork_waits_for_the_thread_that_has_the_agent() {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            assert!(acquire());
            begun.send(()).unwrap();
            // Longer than one attempt.
            std::thread::sleep(Duration::from_millis(100));
            release();
        });
        has_begun.recv().unwrap();
        before_fork();
        assert!(LOCK.is_held_by_caller());
        other.join().unwrap();
        in_child();
        assert!(!is_broken() && acquire());
        release();
    }
}
