//! The primitives by which threads of a process meet: atomics, the futex, and the identity of a thread.
//!
//! The models in `crates/session/tests/models` compile the files that use them (the lock, the fork state, the sleep, the writer thread,
//! the end by a signal, the ticks) with other primitives, which try all orders of execution.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
};
pub use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The word of a futex.
pub type FutexWord = AtomicU32;

/// A static variable, or a function that makes the value of one. A model makes these variables anew in each of its
/// runs, and its primitives cannot be made in a constant.
#[macro_export]
#[doc(hidden)]
macro_rules! __constant {
    ($(#[$about:meta])* $access:vis static $name:ident: $type:ty = $value:expr;) => {
        $(#[$about])* $access static $name: $type = $value;
    };
    ($(#[$about:meta])* $access:vis const fn $($function:tt)*) => {
        $(#[$about])* $access const fn $($function)*
    };
}
#[doc(inline)]
pub use __constant as constant;

/// How many times a thread checks a lock before it yields its processor.
pub const SPINS: u32 = 200;

/// Identifies the calling thread, and stays the same in the child of a fork. The lowest bit is 0.
#[inline]
pub fn this_thread() -> usize {
    // SAFETY: no preconditions. It reads a register, and is safe in a signal handler.
    unsafe { libc::pthread_self() as usize }
}

/// Lets another thread run.
pub fn yield_now() {
    // SAFETY: no preconditions, and safe in a signal handler.
    unsafe { libc::sched_yield() };
}

/// Sleeps for a millisecond. Not the C library's function, which would end a thread that the program has cancelled.
pub fn sleep_millisecond() {
    let millisecond = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: the pointer is to a local variable. Safe in a signal handler.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const millisecond, 0_usize) };
}

/// Sleeps while the word has this value, and for so long at most. May return early.
pub fn futex_wait(word: &FutexWord, value: u32, longest: Duration) {
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
pub fn futex_wake(word: &FutexWord) {
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
