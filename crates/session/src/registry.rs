//! The list of session slots. Slots are never freed, so a fork handler, or a handle that outlives its session, finds
//! valid memory without a lock. A process usually has one session at a time, and uses the same slot again.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use nthbyte_host::lock::LockHolder;

use crate::contract::Host;
use crate::keeper::Keeper;
use crate::recording::Recorder;
use crate::session_state::SessionState;

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
pub(crate) struct SessionSlot {
    /// The host of all its sessions.
    pub(crate) host: AnyHost,
    next: AtomicPtr<SessionSlot>,
    state: SessionState,
    recorder: UnsafeCell<Option<Recorder>>,
}

// SAFETY: only the thread with the lock uses the recorder, and any thread may do so; all other fields are atomic.
unsafe impl Sync for SessionSlot {}
const _: () = {
    const fn is_for_any_thread<T: Send>() {}
    is_for_any_thread::<Recorder>();
};

static FIRST: AtomicPtr<SessionSlot> = AtomicPtr::new(std::ptr::null_mut());

pub(crate) fn slots() -> impl Iterator<Item = &'static SessionSlot> {
    // SAFETY: slots are never freed, and a slot is complete before it is in the list.
    let get = |pointer: &AtomicPtr<SessionSlot>| unsafe { pointer.load(Acquire).as_ref() };
    std::iter::successors(get(&FIRST), move |slot| get(&slot.next))
}

/// Claims an unused slot for a session of this host.
pub(crate) fn claim(host: AnyHost) -> &'static SessionSlot {
    let free = slots().find(|slot| slot.host.key == host.key && slot.claim());
    free.unwrap_or_else(|| add(host))
}

fn add(host: AnyHost) -> &'static SessionSlot {
    let slot: &'static mut SessionSlot = Box::leak(Box::new(SessionSlot {
        host,
        next: AtomicPtr::new(FIRST.load(Acquire)),
        state: SessionState::claimed(host.keeper),
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

impl Deref for SessionSlot {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        &self.state
    }
}

impl SessionSlot {
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
        let holder: LockHolder = self.lock.release_in_child();
        self.fork.become_child(holder);
    }
}
