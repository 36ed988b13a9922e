//! A lock that a signal handler may try to take. If the calling thread already holds it, the attempt fails at once;
//! other threads wait for some milliseconds at most.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::clock::monotonic_nanos;
use crate::sync::{AtomicUsize, SPINS, spin_loop, this_thread, yield_now};

/// The longest time that a thread waits for another one, in nanoseconds. A thread that runs holds the lock for less
/// than a microsecond; a thread that holds it for longer does not run at the moment. On a busy machine it runs again after some
/// time slices: with 3 ms, a service that started beside other work lost 1.5 % of its samples.
const LONGEST_WAIT: u64 = 20_000_000;

/// The holder of a lock at the moment of a fork, as the forking thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// No thread, or the forking thread on behalf of the fork. The data behind the lock is consistent.
    Nobody,
    /// The forking thread: a signal handler forked while the thread held the lock.
    Caller,
    /// Another thread, which does not exist in the child.
    Other,
}

/// One word: the owner's thread pointer, or 0. The lowest bit means that the lock is held for a fork.
#[derive(Debug)]
pub struct Lock(AtomicUsize);

const FOR_FORK: usize = 1;

impl Lock {
    /// A free lock. The word must be zero.
    pub const fn new(word: AtomicUsize) -> Self {
        Self(word)
    }

    /// Takes the lock. Returns false if the calling thread already holds it, or another thread does not release it in
    /// time. Without contention it costs one compare-and-exchange: about 5 ns.
    #[inline]
    pub fn acquire(&self) -> bool {
        let own = this_thread();
        match self.0.compare_exchange(0, own, Acquire, Relaxed) {
            Ok(_) => true,
            Err(owner) => owner & !FOR_FORK != own && self.wait(own),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, word: usize) -> bool {
        let until = monotonic_nanos().saturating_add(LONGEST_WAIT);
        let mut spins = 0;
        loop {
            if self.0.load(Relaxed) == 0
                && self.0.compare_exchange(0, word, Acquire, Relaxed).is_ok()
            {
                return true;
            }
            spins += 1;
            if spins < SPINS {
                spin_loop();
            } else if monotonic_nanos() >= until {
                return false;
            } else {
                yield_now();
            }
        }
    }

    /// Releases the lock. Only its holder may call this.
    #[inline]
    pub fn release(&self) {
        self.0.store(0, Release);
    }

    /// Whether the calling thread holds the lock.
    pub fn is_held_by_caller(&self) -> bool {
        self.0.load(Relaxed) & !FOR_FORK == this_thread()
    }

    /// Whether the calling thread is inside a recording, and not in a fork.
    pub fn is_held_for_recording(&self) -> bool {
        self.0.load(Relaxed) == this_thread()
    }

    /// Takes the lock for a fork. Returns whether it succeeded.
    pub fn acquire_for_fork(&self) -> bool {
        let own = this_thread();
        if self.is_held_by_caller() {
            return false;
        }
        self.wait(own | FOR_FORK)
    }

    /// Ends [`Lock::acquire_for_fork`] in the parent, even if that failed.
    pub fn release_in_parent(&self) {
        let own = this_thread();
        let _ = self.0.compare_exchange(own | FOR_FORK, 0, Release, Relaxed);
    }

    /// Ends [`Lock::acquire_for_fork`] in the child, and returns who held the lock. After that the lock is free, unless
    /// the calling thread itself held it before the fork.
    pub fn release_in_child(&self) -> LockHolder {
        let own = this_thread();
        let owner = self.0.load(Relaxed);
        if owner == own {
            return LockHolder::Caller;
        }
        self.0.store(0, Relaxed);
        if owner == 0 || owner == own | FOR_FORK {
            LockHolder::Nobody
        } else {
            LockHolder::Other
        }
    }
}
