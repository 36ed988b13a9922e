//! What a host knows of the process's memory.

use std::ops::Range;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_profile::Composition;

/// The functions of a host. The writer thread calls them at any time, without a lock, until the process ends. They must not
/// panic, must not wait, and must read what may be unmapped meanwhile through the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Accounts {
    /// Calls its argument with each arena of the host's heap, in the order of addresses.
    pub arenas: fn(&mut dyn FnMut(Range<usize>)),
    /// Calls its argument with each range of addresses that belongs to the agent.
    pub own: fn(&mut dyn FnMut(Range<usize>)),
    /// Adds the host's parts. `is_thorough`: the use of the heap's pages too.
    pub add: fn(&mut Composition, is_thorough: bool),
}

static ACCOUNTS: AtomicPtr<Accounts> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the functions.
pub fn set_accounts(accounts: &'static Accounts) {
    ACCOUNTS.store(std::ptr::from_ref(accounts).cast_mut(), Release);
}

pub(super) fn accounts() -> Option<&'static Accounts> {
    // SAFETY: `set_accounts` stores static references only, and no code writes through the pointer.
    unsafe { ACCOUNTS.load(Acquire).as_ref() }
}
