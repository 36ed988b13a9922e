//! Signals belong to the program: threads of nthbyte take none.

use std::marker::PhantomData;

/// Blocks all signals in the calling thread until it is dropped, there.
pub struct BlockedSignals {
    before: libc::sigset_t,
    thread: PhantomData<*mut ()>,
}

impl BlockedSignals {
    /// A thread that is started meanwhile begins with all signals blocked.
    #[must_use]
    pub fn all() -> Self {
        // SAFETY: a zeroed set is a valid place for `sigfillset` and `pthread_sigmask` to write to.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self {
                before,
                thread: PhantomData,
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `pthread_sigmask`.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
