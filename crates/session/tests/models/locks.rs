//! The lock, the fork state and the sleep.

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::fork_state::{ForkState, State, ToDo};
use crate::lock::{Lock, LockHolder};
use crate::sync::{AtomicU64, AtomicUsize, FutexWord};
use crate::threads::Sleeper;
use crate::{model, run};

/// A lock, the data behind it, and the fork state of a session.
struct Slot {
    lock: Lock,
    fork: ForkState,
    data: UnsafeCell<u32>,
}

// SAFETY: the lock guards the data; loom checks it.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: Lock::new(AtomicUsize::new(0)),
            fork: ForkState::new(AtomicU64::new(0)),
            data: UnsafeCell::new(0),
        })
    }

    /// Changes the data, which only the holder of the lock may do.
    fn change(&self) {
        self.data.with_mut(|data| {
            // SAFETY: the lock is held; loom panics if another thread is here.
            unsafe { *data += 1 };
        });
    }

    /// A recording. Returns whether it was possible, and what it found to do.
    fn record(&self, now: u64) -> Option<ToDo> {
        if !self.lock.acquire() {
            return None;
        }
        assert!(self.lock.is_held_by_caller());
        let to_do = self.fork.notice(now);
        self.change();
        self.lock.release();
        Some(to_do)
    }

    /// What surrounds a fork, in the parent. Returns whether the lock was free in time.
    fn fork_in_parent(&self) -> bool {
        let is_held = self.lock.acquire_for_fork();
        if is_held {
            // The writer thread is stopped here.
            self.change();
        }
        self.fork.forked();
        self.lock.release_in_parent();
        is_held
    }
}

#[test]
fn one_thread_at_a_time_records() {
    model(3, || {
        let slot = Slot::new();
        let recorded = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let thread = |slot: &Arc<Slot>| -> Box<dyn FnOnce() + Send> {
            let (slot, recorded) = (Arc::clone(slot), Arc::clone(&recorded));
            Box::new(move || {
                if slot.record(0).is_some() {
                    recorded.fetch_add(1, Relaxed);
                }
            })
        };
        run(vec![thread(&slot), thread(&slot)]);
        // What the threads wrote is visible to the next holder.
        assert!(slot.lock.acquire());
        // SAFETY: the lock is held.
        let data = slot.data.with(|data| unsafe { *data });
        assert_eq!(data, recorded.load(Relaxed));
        assert!(data > 0);
    });
}

#[test]
fn a_fork_waits_for_a_recording_and_is_noticed_afterwards() {
    model(3, || {
        let slot = Slot::new();
        let (recorder, forker) = (Arc::clone(&slot), Arc::clone(&slot));
        run(vec![
            Box::new(move || {
                assert!(matches!(recorder.record(0), None | Some(ToDo::Nothing)));
            }),
            Box::new(move || {
                forker.fork_in_parent();
                // Another fork of the same thread is possible at once.
                forker.fork_in_parent();
            }),
        ]);
        // The writer thread must not run yet: the next recording, or the one above, has noticed the fork.
        assert!(!slot.fork.lets_writer_run(0));
        assert_eq!(slot.record(0), Some(ToDo::Nothing));
        assert!(matches!(slot.fork.get(), State::WriterAway(_)));
        assert!(!slot.fork.lets_writer_run(0) && slot.fork.lets_writer_run(u64::MAX >> 3));
    });
}

/// The child has a copy of the lock, and of the threads only the one that forked.
#[test]
fn a_child_begins_anew_and_finds_a_free_lock() {
    model(3, || {
        let slot = Slot::new();
        let (recorder, forker) = (Arc::clone(&slot), Arc::clone(&slot));
        let is_gone = Arc::new(AtomicU32::new(0));
        run(vec![
            Box::new(move || {
                // The other thread may be anywhere in a recording when the fork happens; in the child it never ends.
                if recorder.lock.acquire() {
                    recorder.change();
                }
            }),
            Box::new(move || {
                let is_held = forker.lock.acquire_for_fork();
                is_gone.store(1, Release);
                let holder = forker.lock.release_in_child();
                assert_ne!(holder, LockHolder::Caller);
                assert!(!is_held || holder == LockHolder::Nobody);
                forker.fork.become_child(holder);
                let is_whole = holder == LockHolder::Nobody;
                assert_eq!(forker.fork.notice(0), ToDo::BeginAnew { is_whole });
                assert_eq!(forker.fork.notice(0), ToDo::Nothing);
            }),
        ]);
    });
}

/// loom reports a thread that sleeps for ever as a deadlock.
#[test]
fn no_wake_is_lost() {
    model(3, || {
        let sleeper = Arc::new(Sleeper::new(FutexWord::new(0)));
        let request = Arc::new(AtomicU32::new(0));
        let waker = || -> Box<dyn FnOnce() + Send> {
            let (sleeper, request) = (Arc::clone(&sleeper), Arc::clone(&request));
            Box::new(move || {
                request.fetch_add(1, Release);
                sleeper.wake();
            })
        };
        let (asleep, asked) = (Arc::clone(&sleeper), Arc::clone(&request));
        run(vec![
            waker(),
            waker(),
            Box::new(move || {
                while asked.load(Acquire) < 2 {
                    asleep.sleep(Duration::MAX);
                }
            }),
        ]);
    });
}
