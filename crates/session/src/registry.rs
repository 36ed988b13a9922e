//! The list of session slots. Slots are never freed, so a fork handler, or a handle that outlives its session, finds
//! valid memory without a lock. A process usually has one session at a time, and uses the same slot again.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use crate::clock::Clock;
use crate::fork_state::ForkState;
use crate::host::Host;
use crate::keeper::Keeper;
use crate::lock::{Holder, Lock};
use crate::lost::Lost;
use crate::pace::Spent;
use crate::recorder::Recorder;
use crate::sleeper::Sleeper;

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

/// A host, as the two sides of a session see it.
#[derive(Clone, Copy)]
pub(crate) struct AnyHost {
    pub(crate) host: &'static dyn Host,
    keeper: &'static dyn Keeper,
    key: (TypeId, usize),
}

impl AnyHost {
    pub(crate) fn of<H: Host>(host: &'static H) -> Self {
        Self {
            host,
            keeper: host,
            key: (TypeId::of::<H>(), std::ptr::from_ref(host) as usize),
        }
    }
}

/// The memory of one session.
pub(crate) struct Slot {
    /// The host of all its sessions.
    pub(crate) host: AnyHost,
    next: AtomicPtr<Slot>,
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
    recorder: UnsafeCell<Option<Recorder>>,
}

// SAFETY: only the thread with the lock uses the recorder, and any thread may do so; all other fields are atomic.
unsafe impl Sync for Slot {}
const _: () = {
    const fn is_for_any_thread<T: Send>() {}
    is_for_any_thread::<Recorder>();
};

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// All slots.
pub(crate) fn slots() -> impl Iterator<Item = &'static Slot> {
    // SAFETY: slots are never freed, and a slot is complete before it is in the list.
    let get = |pointer: &AtomicPtr<Slot>| unsafe { pointer.load(Acquire).as_ref() };
    std::iter::successors(get(&FIRST), move |slot| get(&slot.next))
}

/// Claims an unused slot for a session of this host.
pub(crate) fn claim(host: AnyHost) -> &'static Slot {
    let free = slots()
        .filter(|slot| slot.host.key == host.key)
        .find(|slot| {
            let (free, finished) = (Status::Free as u8, Status::Finished as u8);
            slot.status
                .compare_exchange(free, finished, Acquire, Relaxed)
                .is_ok()
        });
    free.unwrap_or_else(|| add(host))
}

fn add(host: AnyHost) -> &'static Slot {
    let slot: &'static mut Slot = Box::leak(Box::new(Slot {
        host,
        next: AtomicPtr::new(FIRST.load(Acquire)),
        status: AtomicU8::new(Status::Finished as u8),
        lock: Lock::new(AtomicUsize::new(0)),
        fork: ForkState::new(AtomicU64::new(0)),
        lost: Lost::default(),
        spent: Spent::default(),
        sleeper: Sleeper::new(AtomicU32::new(0)),
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
    /// The session and its host, for those below.
    pub(crate) const fn keeper(&self) -> &'static dyn Keeper {
        self.host.keeper
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

    /// Whether [`Slot::take_must_forget_keys`] would return true. Costs one load.
    #[inline]
    pub(crate) fn must_forget_keys(&self) -> bool {
        self.must_forget_keys.load(Acquire)
    }

    pub(crate) fn take_must_forget_keys(&self) -> bool {
        self.must_forget_keys.swap(false, AcqRel)
    }

    /// Access to the recorder.
    ///
    /// # Safety
    /// The caller holds the lock, and has no other borrow of the recorder.
    #[allow(clippy::mut_from_ref)] // the lock makes it exclusive
    #[inline]
    pub(crate) unsafe fn recorder(&self) -> &mut Option<Recorder> {
        // SAFETY: by the contract.
        unsafe { &mut *self.recorder.get() }
    }

    /// Called before a fork; see [`crate::fork`].
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
        // These events belong to the parent, which counts them itself.
        self.lost.take();
        let holder: Holder = self.lock.release_in_child();
        self.fork.become_child(holder);
    }
}
