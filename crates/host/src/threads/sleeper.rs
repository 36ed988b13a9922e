//! Sleep until another thread says that there is work.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::sync::{FutexWord, futex_wait, futex_wake};

const AWAKE: u32 = 0;
/// There was a wake that no sleep has used yet.
const WOKEN: u32 = 1;
const ASLEEP: u32 = 2;

/// The sleep of one thread. A wake that comes before the sleep ends it at once.
#[derive(Debug)]
pub struct Sleeper(FutexWord);

impl Sleeper {
    /// The word must be zero.
    pub const fn new(word: FutexWord) -> Self {
        Self(word)
    }

    /// Sleeps until [`Sleeper::wake`], for so long at most. Only one thread calls this. What the other thread did
    /// before its wake is visible afterwards.
    pub fn sleep(&self, longest: Duration) {
        if self
            .0
            .compare_exchange(AWAKE, ASLEEP, Relaxed, Relaxed)
            .is_ok()
        {
            futex_wait(&self.0, ASLEEP, longest);
        }
        self.0.swap(AWAKE, Acquire);
    }

    /// Ends the current sleep, or the next one. Safe in a signal handler. Makes a system call only if the thread sleeps.
    pub fn wake(&self) {
        if self.0.swap(WOKEN, Release) == ASLEEP {
            futex_wake(&self.0);
        }
    }
}
