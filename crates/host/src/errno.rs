//! `errno` of the calling thread. A program may read it after a successful allocation, a free or a signal, and expects the value of
//! an earlier call.

/// Calls `work`, which may change `errno`, and restores it. Safe in a signal handler.
#[inline]
pub fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's `errno` is valid as long as the thread runs.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = work();
        *errno = before;
        result
    }
}

/// The error of the last call.
#[inline]
#[must_use]
pub fn errno() -> i32 {
    // SAFETY: a thread has one `errno`.
    unsafe { *libc::__errno_location() }
}

/// Sets the error that the program finds.
#[inline]
pub fn set_errno(error: i32) {
    // SAFETY: a thread has one `errno`.
    unsafe { *libc::__errno_location() = error };
}
