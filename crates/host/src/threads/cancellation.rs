//! Threads that the program cancels (`pthread_cancel`).
//!
//! Such a thread ends at its next cancellation point: in a system call that may wait, or in a join. `malloc`, `fork` and
//! `exit` are none, so they must not become one here: the thread would leave a lock held, or the process would be
//! aborted. Signal handlers call the kernel by number instead, which is no cancellation point either.

use std::ffi::c_int;
use std::ptr::null_mut;

/// `PTHREAD_CANCEL_DISABLE` of `pthread.h`.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Puts back the state of the calling thread when it is dropped.
struct Uncancelled {
    before: c_int,
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that the function gave.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}

/// Calls `work`, in which the calling thread does not end because it is cancelled.
pub fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: a valid state, and a place for the one before.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let _state = Uncancelled { before };
    work()
}
