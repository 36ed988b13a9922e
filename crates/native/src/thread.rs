//! The state of the calling thread.
//!
//! It lies in the static TLS block, at a fixed distance from the thread pointer. Rust's own thread-local variables call
//! a function of the dynamic linker, which may call `malloc`. `caller` is the return address of the last call of `mmap`
//! that took the slow path, and of each call that is sampled.

pub use nthbyte_requests::{Busy, ThreadState};

#[cfg(not(test))]
std::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign {align}",
    ".globl nthbyte_native_thread",
    ".hidden nthbyte_native_thread",
    ".type nthbyte_native_thread, @object",
    ".size nthbyte_native_thread, 64",
    "nthbyte_native_thread:",
    ".zero 64",
    ".popsection",
    align = const align_of::<ThreadState>(),
);

/// The state of the calling thread. Only the calling thread may use it, and a signal handler may interrupt each use: so
/// no reference to the whole is made.
#[cfg(not(test))]
#[inline]
pub fn current() -> *mut ThreadState {
    crate::processor::thread() as *mut ThreadState
}

#[cfg(test)]
pub fn current() -> *mut ThreadState {
    use std::cell::UnsafeCell;
    thread_local! {
        static THREAD: UnsafeCell<ThreadState> = const { UnsafeCell::new(ThreadState::new()) };
    }
    THREAD.with(UnsafeCell::get)
}
