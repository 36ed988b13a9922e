//! Has PyPy take the snapshot that is due, in its main thread, where Python code may run next.
//!
//! That is where PyPy calls handlers of signals, written in Python. PyPy has one C function that notes a signal: the one that the
//! kernel calls. The writer thread calls it with the number of a signal that the C library keeps for itself, so neither the
//! program nor the kernel knows a handler for it, and no system call of the program is interrupted. Where the program has asked to
//! be woken by signals (`signal.set_wakeup_fd`, as asyncio does), that function wakes it.
//!
//! Nothing else calls Python in a thread of the program's own: a callback, or a thread of ours that runs Python, would make PyPy
//! set up threads, which each loop pays for from then on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nthbyte_profile::holders::Reason;
use nthbyte_rpython::binary::MappedLibrary;
use nthbyte_session::snapshots::due;

/// The signal with which the C library ends threads. `nthbyte/_pypy.py` has the same number.
const NUMBER: c_int = 32;

/// PyPy's function that notes a signal; 0 if it is not known.
static NOTE: AtomicUsize = AtomicUsize::new(0);
/// Whether Python was asked, and has not come yet.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Finds PyPy's function: the handler of a signal for which Python has one now. Returns whether it was found.
pub fn learn(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only fills the struct, for which zeroes are valid.
    let handler = unsafe {
        match libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) {
            0 => now.assume_init().sa_sigaction,
            _ => 0,
        }
    };
    let is_known =
        MappedLibrary::of_this_process().is_some_and(|library| library.text.contains(&handler));
    if is_known {
        NOTE.store(handler, Release);
    }
    is_known
}

/// Asks Python, if a snapshot is due. Called by the writer thread, again and again.
pub fn ask() {
    let note = NOTE.load(Acquire);
    if note != 0 && due::is_due() && !IS_ASKED.swap(true, AcqRel) {
        // SAFETY: PyPy's handler of signals, which takes a number and may be called in any thread at any time.
        unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(note)(NUMBER) };
    }
}

/// Called by Python when it comes: the reason of the snapshot that is due, and whether it is taken whatever it costs.
pub fn take() -> Option<(Reason, bool)> {
    IS_ASKED.store(false, Release);
    let reason = due::take_due()?;
    Some((reason, due::take_urgency()))
}
