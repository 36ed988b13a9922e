//! The arithmetic of sampling, and requests of excluded code, which are not the program's.

pub use nthbyte_requests::sampler::{
    begin, begin_in_child, end, follow_period, is_on, join, period, set_period,
};

use nthbyte_requests::{ThreadState, sampler};

use crate::reports;

/// Decides about a request of `bytes`, which were subtracted from the thread's countdown. Returns the number of sample
/// points in it; 0 if it is not sampled, or is not the program's.
///
/// # Safety
/// `thread` is the calling thread's state.
pub unsafe fn points(thread: *mut ThreadState, bytes: usize, caller: usize) -> u32 {
    // SAFETY: by the contract.
    unsafe { of_program(thread, sampler::points(thread, bytes), caller) }
}

/// The same as [`points`], for a request that was not subtracted from the countdown.
///
/// # Safety
/// As for [`points`].
pub unsafe fn points_of(thread: *mut ThreadState, bytes: usize, caller: usize) -> u32 {
    // SAFETY: by the contract.
    unsafe { of_program(thread, sampler::points_of(thread, bytes), caller) }
}

/// Keeps the caller of a sampled request.
unsafe fn of_program(thread: *mut ThreadState, points: u32, caller: usize) -> u32 {
    if points == 0 || reports::is_excluded(caller) {
        return 0;
    }
    // SAFETY: the caller's own state.
    unsafe { (*thread).caller = caller };
    points
}
