//! Requests with an alignment. They are rarer than `malloc`, so each call comes here.
//!
//! An allocator may pass one of them on to another one by a jump (tcmalloc's `valloc` to its `memalign`), which then comes
//! here with the program's return address. It is one request: the thread is busy meanwhile.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use nthbyte_host::memory::{SMALLEST_PAGE, page_size};
use nthbyte_host::preload::Kind;

use crate::calls::{enlarged, record};
use crate::functions::Function;
use crate::replaced::{self, next};
use crate::thread::{self, Busy};
use crate::{early, sampler};

/// `posix_memalign`.
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
    caller: usize,
) -> c_int {
    type Original = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    // SAFETY: the program's call. The function of this name has this type.
    unsafe {
        if alignment.is_multiple_of(size_of::<usize>())
            && let Some(block) = sampled(alignment, size, caller)
        {
            *place = block;
            return 0;
        }
        let original = next(Function::PosixMemalign);
        if original.is_null() {
            return libc::ENOMEM;
        }
        let _busy = Busy::begin(thread::current());
        std::mem::transmute::<*mut c_void, Original>(original)(place, alignment, size)
    }
}

/// Defines functions that differ only in name.
macro_rules! with_alignment {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(alignment: usize, size: usize, caller: usize) -> *mut c_void {
            type Original = unsafe extern "C" fn(usize, usize) -> *mut c_void;
            // SAFETY: the program's call. The function of this name has this type.
            unsafe {
                if let Some(block) = sampled(alignment, size, caller) {
                    return block;
                }
                let original = next(Function::$function);
                if original.is_null() {
                    return null_mut();
                }
                let _busy = Busy::begin(thread::current());
                std::mem::transmute::<*mut c_void, Original>(original)(alignment, size)
            }
        }
    )*};
}

with_alignment! {
    /// `aligned_alloc`.
    aligned_alloc = AlignedAlloc;
    /// `memalign`.
    memalign = Memalign;
}

/// Defines functions that align to the OS page.
macro_rules! with_pages {
    ($($(#[$doc:meta])* $name:ident = $function:ident, $size:expr;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(size: usize, caller: usize) -> *mut c_void {
            type Original = unsafe extern "C" fn(usize) -> *mut c_void;
            let rounded: fn(usize) -> Option<usize> = $size;
            // SAFETY: the program's call. The function of this name has this type.
            unsafe {
                if let Some(size) = rounded(size)
                    && let Some(block) = sampled(page_size(), size, caller)
                {
                    return block;
                }
                let original = next(Function::$function);
                if original.is_null() {
                    return null_mut();
                }
                let _busy = Busy::begin(thread::current());
                std::mem::transmute::<*mut c_void, Original>(original)(size)
            }
        }
    )*};
}

with_pages! {
    /// `valloc`.
    valloc = Valloc, Some;
    /// `pvalloc`, which rounds the size up to whole OS pages.
    pvalloc = Pvalloc, |size| size.checked_next_multiple_of(page_size());
}

/// The block of a request that is sampled. `None` if it is not, or if there is no memory.
unsafe fn sampled(alignment: usize, size: usize, caller: usize) -> Option<*mut c_void> {
    let Some(replaced) = replaced::functions() else {
        return (alignment <= SMALLEST_PAGE).then(|| early::allocate(size));
    };
    // The replaced function decides what other alignments mean.
    let memalign = replaced.memalign.filter(|_| alignment.is_power_of_two())?;
    let thread = thread::current();
    // SAFETY: the caller's own state; the program's request.
    unsafe {
        let points = sampler::points_of(thread, size, caller);
        if points == 0 {
            return None;
        }
        let block = memalign(alignment, enlarged(size));
        if block.is_null() {
            return None;
        }
        record(thread, block, size, points, Kind::Memalign);
        Some(block)
    }
}
