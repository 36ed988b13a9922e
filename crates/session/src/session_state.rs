//! What the recorder, the writer thread and the threads of the program share of one session.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use nthbyte_host::lock::Lock;
use nthbyte_host::threads::Sleeper;

use crate::clock::Clock;
use crate::fork_state::ForkState;
use crate::keeper::Keeper;
use crate::pace::Spent;
use crate::ring::Lost;

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// The slot has no session.
    Free = 0,
    /// The session records.
    Running = 1,
    /// The session has ended with a panic, and is not finished yet.
    Failed = 2,
    /// The session is finished.
    Finished = 3,
}

/// The state of one session, all but its recorder.
pub(crate) struct SessionState {
    keeper: &'static dyn Keeper,
    status: AtomicU8,
    pub(crate) lock: Lock,
    pub(crate) fork: ForkState,
    /// Counts of lost events that are not in the file yet.
    pub(crate) lost: Lost,
    /// What the writer thread tells of the cost.
    pub(crate) spent: Spent,
    /// The sleep of the writer thread, which a signal handler can end.
    pub(crate) sleeper: Sleeper,
    /// The `CLOCK_MONOTONIC` time, in nanoseconds, at which the session's clock reads zero.
    start: AtomicU64,
    /// Set when an object was freed but its key could not be removed. The next recording then removes all keys.
    pub(crate) must_forget_keys: AtomicBool,
    /// Set when a writer thread was abandoned in a write that does not end.
    pub(crate) is_abandoned: AtomicBool,
}

impl SessionState {
    /// The state of a session that somebody has claimed.
    pub(crate) fn claimed(keeper: &'static dyn Keeper) -> Self {
        Self {
            keeper,
            status: AtomicU8::new(Status::Finished as u8),
            lock: Lock::new(AtomicUsize::new(0)),
            fork: ForkState::new(AtomicU64::new(0)),
            lost: Lost::default(),
            spent: Spent::default(),
            sleeper: Sleeper::new(AtomicU32::new(0)),
            start: AtomicU64::new(0),
            must_forget_keys: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Claims it, if no session has it. Returns whether that was possible.
    pub(crate) fn claim(&self) -> bool {
        let (free, finished) = (Status::Free as u8, Status::Finished as u8);
        self.status
            .compare_exchange(free, finished, Acquire, Relaxed)
            .is_ok()
    }

    /// The session and its host, for those below.
    pub(crate) const fn keeper(&self) -> &'static dyn Keeper {
        self.keeper
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.status.load(Relaxed) == Status::Running as u8
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.status.load(Relaxed) == Status::Failed as u8
    }

    pub(crate) fn set_status(&self, status: Status) {
        self.status.store(status as u8, Release);
    }

    /// Ends a running session after a panic.
    pub(crate) fn fail(&self) {
        let (running, failed) = (Status::Running as u8, Status::Failed as u8);
        let _ = self
            .status
            .compare_exchange(running, failed, Relaxed, Relaxed);
    }

    /// Prepares the slot for a new session of the thread that claimed it.
    pub(crate) fn reset(&self) {
        self.fork.reset();
        self.lost.take();
        self.spent.reset();
        self.take_must_forget_keys();
    }

    /// Makes the slot available again after its session. An abandoned writer thread still uses its slot, which then
    /// stays claimed.
    pub(crate) fn give_back(&self) {
        if !self.is_abandoned.load(Relaxed) {
            let (finished, free) = (Status::Finished as u8, Status::Free as u8);
            let _ = self
                .status
                .compare_exchange(finished, free, Release, Relaxed);
        }
    }

    /// Sets the start of the session's clock.
    pub(crate) fn set_start(&self, clock: Clock) {
        self.start.store(clock.start_nanos(), Relaxed);
    }

    /// The session's clock.
    pub(crate) fn clock(&self) -> Clock {
        Clock::started_at(self.start.load(Relaxed))
    }

    /// Whether [`Self::take_must_forget_keys`] would return true. Costs one load.
    #[inline]
    pub(crate) fn must_forget_keys(&self) -> bool {
        self.must_forget_keys.load(Acquire)
    }

    pub(crate) fn take_must_forget_keys(&self) -> bool {
        self.must_forget_keys.swap(false, AcqRel)
    }
}
