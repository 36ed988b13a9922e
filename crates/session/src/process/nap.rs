//! Naps of the writer threads, which any code can end: a signal handler too.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// Changes with each call of [`wake`].
static CALLS: AtomicU32 = AtomicU32::new(0);

/// The calls until now. A nap that begins with them ends at once if there was another call since.
pub(crate) fn calls() -> u32 {
    CALLS.load(Acquire)
}

/// Waits until there is another call, but not longer than this.
pub(crate) fn nap(calls: u32, longest: Duration) {
    let time = libc::timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the word is static, and the time is a local variable; the kernel compares the word with `calls` first.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CALLS.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            calls,
            &raw const time,
        );
    }
}

/// Ends the naps of all writer threads of this process. Safe in a signal handler, apart from `errno`.
pub(crate) fn wake() {
    CALLS.fetch_add(1, Release);
    // SAFETY: the word is static.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CALLS.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}
