//! The state of the calling thread.

use std::cell::UnsafeCell;

use nthbyte_requests::ThreadState;

thread_local! {
    /// It has an initial value that is known when the program is compiled, and nothing to drop: so it is there in each
    /// thread from its first instruction to its last, and an executable reaches it by a fixed distance from the thread
    /// pointer.
    static THREAD: UnsafeCell<ThreadState> = const { UnsafeCell::new(ThreadState::new()) };
}

/// The state of the calling thread.
#[inline(always)]
pub(super) fn current() -> *mut ThreadState {
    THREAD.with(UnsafeCell::get)
}

/// The counter of the calling thread that is not 0 while its requests are not the program's.
pub(super) unsafe extern "C" fn busy() -> *mut u32 {
    // SAFETY: the field of the calling thread's state.
    unsafe { &raw mut (*current()).busy }
}

/// Calls `work`, whose requests are not the program's.
pub(super) fn unobserved<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the calling thread's state.
    let _busy = unsafe { nthbyte_requests::Busy::begin(current()) };
    work()
}
