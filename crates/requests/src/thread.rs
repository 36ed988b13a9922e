//! The state of a thread.

use std::mem::MaybeUninit;

use nthbyte_sampling::SamplePoints;

/// The state of a thread. It begins as zeroes. Only its thread may use it, and a signal handler may interrupt each use: so
/// no reference to the whole is made.
///
/// It lies in one line of the cache where it can. On AArch64, glibc gives no more than 16 bytes of alignment to a library that is loaded later
/// and has its variables at a fixed distance from the thread pointer (`_dl_try_allocate_static_tls` of `elf/dl-reloc.c`).
#[derive(Debug)]
#[cfg_attr(target_arch = "x86_64", repr(C, align(64)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(16)))]
pub struct ThreadState {
    /// Bytes to the next sample point, but at most [`IDLE`](crate::sampler::IDLE): `rest` comes after them. 0 in a new thread,
    /// which makes its first request take the slow path. The fast path subtracts each request from it.
    pub countdown: u64,
    /// A place for the caller: where the request came from.
    pub caller: usize,
    /// Not 0 while this thread's requests are not the program's.
    pub busy: u32,
    /// The number of the session that `countdown`, `rest` and `points` belong to; 0 if none.
    pub(crate) session: u32,
    /// The rest of the distance to the next sample point, after `countdown`.
    pub(crate) rest: u64,
    /// The sample points of the session.
    pub(crate) points: MaybeUninit<SamplePoints>,
}

const _: () = assert!(size_of::<ThreadState>() == 64);

impl ThreadState {
    /// The state of a new thread.
    #[must_use]
    pub const fn new() -> Self {
        // SAFETY: zeroes are a valid value of each field.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

/// Marks a thread as busy until it is dropped.
#[derive(Debug)]
pub struct Busy(*mut ThreadState);

impl Busy {
    /// Marks the calling thread as busy.
    ///
    /// # Safety
    /// The state is the calling thread's, and stays as long as this.
    pub unsafe fn begin(thread: *mut ThreadState) -> Self {
        // SAFETY: by the contract.
        unsafe { (*thread).busy += 1 };
        Self(thread)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: by the contract of `begin`; the pointer keeps this in its thread.
        unsafe { (*self.0).busy -= 1 };
    }
}
