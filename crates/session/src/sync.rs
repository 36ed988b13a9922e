//! The primitives below [`Lock`](crate::lock::Lock), [`ForkState`](crate::fork_state::ForkState) and
//! [`Sleeper`](crate::sleeper::Sleeper): atomics, the futex, and the identity of a thread.
//!
//! The models in `tests/models` compile those files with other primitives, which try all orders of execution.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

/// How many times a thread checks a lock before it yields its processor.
pub(crate) const SPINS: u32 = 200;

/// Identifies the calling thread, and stays the same in the child of a fork. The lowest bit is 0.
#[inline]
pub(crate) fn this_thread() -> usize {
    // SAFETY: no preconditions. It reads a register, and is safe in a signal handler.
    unsafe { libc::pthread_self() as usize }
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    // SAFETY: no preconditions, and safe in a signal handler.
    unsafe { libc::sched_yield() };
}

/// Sleeps while the word has this value, and for so long at most. May return early.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, longest: Duration) {
    let longest = libc::timespec {
        tv_sec: longest.as_secs().min(i32::MAX as u64).cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the word is live and aligned, and the time is valid. The kernel only compares the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const longest,
        )
    };
}

/// Wakes a thread that sleeps in [`futex_wait`] for this word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel uses only the address. Safe in a signal handler.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}
