//! Work that this crate does for a host that takes time samples.
//!
//! Such a host looks for new threads, and records what its signal handler has stored. Both need a thread that the
//! program does not stop: the writer thread is there already. And a forked child has no timers until it makes its own.
//!
//! A host with native frames also looks at the libraries that were loaded: its *preparer* does that. Where native memory is
//! recorded, mappings are looked at, too.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use nthbyte_profile::event::Nanos;

/// The functions of a host. They must not panic, and must not wait.
#[derive(Clone, Copy, Debug)]
pub struct Keeper {
    /// Called by the writer thread between two blocks, without a lock. Returns the longest time until the next call.
    pub keep: fn() -> Duration,
    /// Called by the writer thread before it completes the profile because the process ends, again and again, until it
    /// returns false: records what waits, as far as the ring has room. Returns whether more waits.
    pub record_waiting: fn() -> bool,
    /// Called in the child of a fork when its profile begins, by the thread that records its first event. That thread
    /// holds the session's lock.
    pub begin_in_child: fn(),
}

static KEEPER: AtomicPtr<Keeper> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the functions, or removes them. A call may still be running when this returns.
pub fn set_keeper(keeper: Option<&'static Keeper>) {
    let keeper = keeper.map_or(std::ptr::null(), std::ptr::from_ref);
    KEEPER.store(keeper.cast_mut(), Release);
}

/// The preparer, of type `fn()`.
static PREPARER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that the writer thread calls before each block, and before it completes a profile because the
/// process ends. It holds no lock then. The function must not panic. It may read files; nobody waits for it but a fork,
/// for a bounded time, and the end of the session.
pub fn set_preparer(preparer: fn()) {
    PREPARER.store(preparer as *mut (), Release);
}

/// Calls the preparer, if there is one.
pub(crate) fn prepare() {
    call(&PREPARER);
}

/// Calls a function of type `fn()`, if there is one.
fn call(function: &AtomicPtr<()>) {
    let function = function.load(Acquire);
    if !function.is_null() {
        // SAFETY: a function of this type was stored.
        unsafe { std::mem::transmute::<*mut (), fn()>(function)() };
    }
}

/// Looks at mappings as of a time, all of them or those that are not wholly in memory. Returns whether there was any.
pub(crate) type Look = fn(Nanos, bool) -> bool;

/// What looks, of type [`Look`].
static LOOK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets what looks at mappings when the writer thread finds it time, and before a signal ends the process.
pub(crate) fn set_look(look: Look) {
    LOOK.store(look as *mut (), Release);
}

/// Looks, if that was set.
pub(crate) fn look(now: Nanos, all: bool) -> bool {
    let look = LOOK.load(Acquire);
    // SAFETY: a function of this type was stored.
    !look.is_null() && unsafe { std::mem::transmute::<*mut (), Look>(look)(now, all) }
}

fn keeper() -> Option<&'static Keeper> {
    // SAFETY: `set_keeper` stores static references only, and no code writes through the pointer.
    unsafe { KEEPER.load(Acquire).as_ref() }
}

/// The function that decides about the period where no sample comes, of type `fn()`.
static DECIDER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that the writer thread calls between two blocks, without a lock.
pub(crate) fn set_decider(decider: fn()) {
    DECIDER.store(decider as *mut (), Release);
}

/// Calls the decider, and the host's first function, if there is one.
pub(crate) fn keep() -> Option<Duration> {
    call(&DECIDER);
    keeper().map(|keeper| (keeper.keep)())
}

/// Calls the second function, if there is one.
pub(crate) fn record_waiting() -> bool {
    keeper().is_some_and(|keeper| (keeper.record_waiting)())
}

/// Calls the third function, if there is one.
pub(crate) fn begin_in_child() {
    if let Some(keeper) = keeper() {
        (keeper.begin_in_child)();
    }
}
