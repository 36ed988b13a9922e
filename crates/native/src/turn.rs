//! One thread at a time changes slots.
//!
//! The holder takes no other lock, and makes a few system calls at most. So another thread waits shortly, and gives up
//! if it takes long: the holder may be interrupted by the waiting signal handler. Forks wait for it as well, for in a child
//! the holder would not exist.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize};

use crate::thread;

/// The thread that has the turn, by [`thread::current`]; one more if it has it for a fork; 0 if none has.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// Attempts of a waiting thread, each of which lets other threads run.
const ATTEMPTS: u32 = 10_000;

fn take(holder: usize) -> bool {
    let mut attempts = 0;
    while HOLDER
        .compare_exchange_weak(0, holder, Acquire, Relaxed)
        .is_err()
    {
        attempts += 1;
        if attempts == ATTEMPTS || HOLDER.load(Relaxed) & !1 == holder & !1 {
            return false;
        }
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
    }
    true
}

/// The turn of the calling thread, until it is dropped.
pub struct Turn;

impl Turn {
    /// `None` if this thread has the turn already, or another one for too long.
    pub fn take() -> Option<Self> {
        take(thread::current() as usize).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HOLDER.store(0, Release);
    }
}

/// `struct r_debug` of `link.h`: what the dynamic linker tells a debugger. Null if it is not there.
static LINKER: AtomicPtr<LinkerState> = AtomicPtr::new(null_mut());

#[repr(C)]
struct LinkerState {
    version: c_int,
    first: *const c_void,
    breakpoint: usize,
    /// 0 while no library is loaded or unloaded.
    state: AtomicI32,
}

/// Whether this is the child of a fork that came while another thread loaded or unloaded a library. The dynamic linker
/// ends a process that calls `dlopen` then.
static IS_LINKER_STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether `dlopen` must not be called any more.
pub fn is_linker_stopped() -> bool {
    IS_LINKER_STOPPED.load(Relaxed)
}

/// Makes forks wait for the turn. `linker` is the address of the dynamic linker's `struct r_debug`; 0 if it is not known.
pub fn keep_at_forks(linker: usize) {
    LINKER.store(linker as *mut LinkerState, Relaxed);
    unsafe extern "C" fn before() {
        take(thread::current() as usize + 1);
    }
    unsafe extern "C" fn in_parent() {
        // Not if it was not taken.
        let _ = HOLDER.compare_exchange(thread::current() as usize + 1, 0, Release, Relaxed);
    }
    unsafe extern "C" fn in_child() {
        // The thread has the address that it had in the parent. Other holders do not exist here.
        if HOLDER.load(Relaxed) != thread::current() as usize {
            HOLDER.store(0, Release);
        }
        // SAFETY: null, or a variable that stays.
        let linker = unsafe { LINKER.load(Relaxed).as_ref() };
        let is_idle = linker.is_some_and(|linker| linker.state.load(Relaxed) == 0);
        IS_LINKER_STOPPED.fetch_or(!is_idle, Relaxed);
    }
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}
