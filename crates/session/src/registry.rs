//! Where sessions are: in slots that are never freed, so that a fork handler, or a handle that outlives its session,
//! finds valid memory without a lock. A process has one session at a time as a rule, and uses one slot again and again.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};

use crate::clock::Clock;
use crate::fork::ForkState;
use crate::lock::{Holder, Lock};
use crate::lost::Lost;
use crate::recorder::Recorder;

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// Nothing.
    Free = 0,
    /// A session that records.
    Running = 1,
    /// A session that a panic has ended; it is not finished yet.
    Failed = 2,
    /// A session that is finished.
    Finished = 3,
}

/// The place of a session.
pub(crate) struct Slot {
    next: AtomicPtr<Slot>,
    status: AtomicU8,
    pub(crate) lock: Lock,
    pub(crate) fork: ForkState,
    /// Events that were lost and are not in the file yet.
    pub(crate) lost: Lost,
    /// When the session's clock was zero (`CLOCK_MONOTONIC`, in nanoseconds).
    start: AtomicU64,
    /// A key could not be forgotten when its object was freed: all are forgotten by the next recording.
    pub(crate) must_forget_keys: AtomicBool,
    /// A writer thread was left behind, in a write that does not end.
    pub(crate) is_abandoned: AtomicBool,
    recorder: UnsafeCell<Option<Recorder>>,
}

// SAFETY: the recorder is used by the thread that has the lock only, and may be used by any; all else is atomic.
unsafe impl Sync for Slot {}
const _: () = {
    const fn is_for_any_thread<T: Send>() {}
    is_for_any_thread::<Recorder>();
};

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// All slots.
pub(crate) fn slots() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: slots are never freed, and what is in the list was made before.
    let get = |pointer: &AtomicPtr<Slot>| unsafe { pointer.load(Acquire).as_ref() };
    std::iter::successors(get(&FIRST), move |slot| get(&slot.next))
}

/// A slot that nobody uses, to be used by the caller.
pub(crate) fn claim() -> &'static Slot {
    let free = slots().find(|slot| {
        let (free, finished) = (Status::Free as u8, Status::Finished as u8);
        slot.status
            .compare_exchange(free, finished, Acquire, Relaxed)
            .is_ok()
    });
    free.unwrap_or_else(add)
}

fn add() -> &'static Slot {
    let slot: &'static mut Slot = Box::leak(Box::new(Slot {
        next: AtomicPtr::new(FIRST.load(Acquire)),
        status: AtomicU8::new(Status::Finished as u8),
        lock: Lock::new(),
        fork: ForkState::new(),
        lost: Lost::default(),
        start: AtomicU64::new(0),
        must_forget_keys: AtomicBool::new(false),
        is_abandoned: AtomicBool::new(false),
        recorder: UnsafeCell::new(None),
    }));
    let slot = &*slot;
    let pointer = std::ptr::from_ref(slot).cast_mut();
    while let Err(first) = FIRST.compare_exchange(slot.next.load(Relaxed), pointer, AcqRel, Acquire)
    {
        slot.next.store(first, Relaxed);
    }
    slot
}

impl Slot {
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

    /// Ends a session that runs, because of a panic.
    pub(crate) fn fail(&self) {
        let (running, failed) = (Status::Running as u8, Status::Failed as u8);
        let _ = self
            .status
            .compare_exchange(running, failed, Relaxed, Relaxed);
    }

    /// Gets ready for a session of the thread that has claimed it.
    pub(crate) fn reset(&self) {
        self.fork.reset();
        self.lost.take();
        self.take_must_forget_keys();
    }

    /// Its session has gone: others may claim it. Not if its writer thread could not be waited for, which uses it still.
    pub(crate) fn give_back(&self) {
        if !self.is_abandoned.load(Relaxed) {
            let (finished, free) = (Status::Finished as u8, Status::Free as u8);
            let _ = self
                .status
                .compare_exchange(finished, free, Release, Relaxed);
        }
    }

    /// The session's clock begins anew.
    pub(crate) fn set_start(&self, clock: Clock) {
        self.start.store(clock.start_nanos(), Relaxed);
    }

    /// The session's clock.
    pub(crate) fn clock(&self) -> Clock {
        Clock::started_at(self.start.load(Relaxed))
    }

    /// Whether [`Slot::take_must_forget_keys`] would be true. One load.
    #[inline]
    pub(crate) fn must_forget_keys(&self) -> bool {
        self.must_forget_keys.load(Acquire)
    }

    pub(crate) fn take_must_forget_keys(&self) -> bool {
        self.must_forget_keys.swap(false, AcqRel)
    }

    /// The place of the recorder.
    ///
    /// # Safety
    /// The caller has the lock, and no other borrow of the recorder.
    #[allow(clippy::mut_from_ref)] // the lock makes it exclusive
    #[inline]
    pub(crate) unsafe fn recorder(&self) -> &mut Option<Recorder> {
        // SAFETY: by the contract.
        unsafe { &mut *self.recorder.get() }
    }

    /// See [`crate::fork`].
    pub(crate) fn before_fork(&self) {
        if !self.lock.acquire_for_fork() || self.fork.is_child() {
            return;
        }
        // SAFETY: the lock was acquired.
        if let Some(recorder) = unsafe { self.recorder() } {
            recorder.writer().stop_for_fork();
        }
    }

    pub(crate) fn after_fork_in_parent(&self) {
        self.fork.forked();
        self.lock.release_in_parent();
    }

    pub(crate) fn after_fork_in_child(&self) {
        // These events are the parent's, which counts them itself.
        self.lost.take();
        let holder: Holder = self.lock.release_in_child();
        self.fork.become_child(holder);
    }
}
