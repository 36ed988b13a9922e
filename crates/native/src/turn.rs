//! One thread at a time changes slots.
//!
//! The holder takes no other lock, and makes a few system calls at most. So another thread waits, but with a limit: a fork
//! has the turn as well, for in a child another holder would not exist, and handlers of other libraries run in a fork,
//! which may wait for that thread. A signal handler that interrupts the holder does not wait.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize};
use std::time::Duration;

use nthbyte_host::clock::monotonic_nanos;
use nthbyte_host::keep_errno;
use nthbyte_host::threads::uncancelled;

use crate::thread;

/// The thread that has the turn, by [`thread::current`]; one more if it has it for a fork; 0 if none has.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// The longest time that a thread waits for another one, in nanoseconds. A holder that takes so long has no processor: a
/// quota of the system may keep it waiting for 100 ms.
const LONGEST_WAIT: u64 = 300_000_000;
/// A fork's, which has the session's lock meanwhile.
const LONGEST_WAIT_OF_FORK: u64 = 5_000_000;
/// Everyone's, after one has waited in vain.
const LONGEST_WAIT_IN_VAIN: u64 = 1_000_000;
/// A waiting thread lets others run so many times, and sleeps after that.
const YIELDS: u32 = 100;
/// How long it sleeps each time.
const NAP: Duration = Duration::from_micros(100);

/// Whether the last thread that waited did so in vain.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

fn take(holder: usize, longest: u64) -> bool {
    HOLDER.compare_exchange(0, holder, Acquire, Relaxed).is_ok() || wait(holder, longest)
}

#[cold]
#[inline(never)]
fn wait(holder: usize, longest: u64) -> bool {
    let longest = if IS_STUCK.load(Relaxed) {
        LONGEST_WAIT_IN_VAIN
    } else {
        longest
    };
    let until = monotonic_nanos().saturating_add(longest);
    let mut yields = 0;
    while HOLDER
        .compare_exchange_weak(0, holder, Acquire, Relaxed)
        .is_err()
    {
        if HOLDER.load(Relaxed) & !1 == holder & !1 {
            return false;
        }
        if monotonic_nanos() >= until {
            IS_STUCK.store(true, Relaxed);
            return false;
        }
        yields += 1;
        if yields <= YIELDS {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        } else {
            keep_errno(|| uncancelled(|| std::thread::sleep(NAP)));
        }
    }
    IS_STUCK.store(false, Relaxed);
    true
}

/// The turn of the calling thread, until it is dropped.
pub struct Turn;

impl Turn {
    /// `None` if this thread has the turn already, or another one for too long.
    pub fn take() -> Option<Self> {
        take(thread::current() as usize, LONGEST_WAIT).then_some(Self)
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
        take(thread::current() as usize + 1, LONGEST_WAIT_OF_FORK);
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
