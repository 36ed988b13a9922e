//! C++'s `operator new` and `operator delete` of another allocator, and its own functions that free.
//!
//! The C++ library's own operators call `malloc` and `free`, and are left alone: their memory is sampled there. jemalloc,
//! mimalloc and tcmalloc bring operators that call neither. Those are replaced, if they are in the same library as the
//! replaced `malloc`, and by import slots only ([`slots`](crate::slots)): a preloaded definition would also stand before
//! an `operator new` of which nothing but the library that calls it knows.
//!
//! A sampled block is one that the replaced operator has made for the request as it is: `operator delete` may be told size
//! and alignment, and such an allocator believes them. So each
//! `operator delete` must know whether its block is sampled: the count of its OS page tells, of most, that it is not
//! ([`pages`](nthbyte_requests::pages)). A `delete` that does not come here is missed, as a `free` is.
//!
//! jemalloc's `dallocx` and `sdallocx`, tcmalloc's `tc_free_sized` and C's `free_sized` and `free_aligned_sized` free blocks
//! of `malloc`, as `operator delete` does `operator new`'s.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::preload::Kind;

use crate::functions::Function;
use crate::processor::{pass_on_unless_in_page, request};
use crate::replaced::FOUND;
use crate::{calls, sampler, thread};

/// Defines the entries of `operator new`, and what they do at a sample point. The first argument is the size; the number is
/// the caller's place among the arguments at a sample point, from 0 on. The replaced operator may throw: nothing here has a
/// destructor.
macro_rules! new {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*) = $function:ident, $number:tt, $at_point:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name(size: usize, $($argument: usize),*) -> *mut c_void {
            request!("", $number, FOUND, Function::$function as usize * size_of::<usize>(), $at_point)
        }

        unsafe extern "C-unwind" fn $at_point(size: usize, $($argument: usize,)* caller: usize) -> *mut c_void {
            type Original = unsafe extern "C-unwind" fn(usize, $(new!(@type $argument)),*) -> *mut c_void;
            let thread = thread::current();
            let original = FOUND[Function::$function as usize].load(Relaxed);
            // SAFETY: the caller's own state; the program's call, of the operator with this name and these arguments. A
            // slot leads here only if there is one.
            unsafe {
                let points = sampler::points(thread, size, caller);
                let block = std::mem::transmute::<*mut c_void, Original>(original)(size, $($argument),*);
                if points > 0 && !block.is_null() {
                    calls::record(thread, block, size, points, Kind::New);
                }
                block
            }
        }
    )*};
    (@type $argument:ident) => { usize };
}

new! {
    /// `operator new(size)`.
    new() = New, 1, new_at_point;
    /// `operator new[](size)`.
    new_array() = NewArray, 1, new_array_at_point;
    /// `operator new(size, nothrow)`.
    new_nothrow(tag) = NewNothrow, 2, new_nothrow_at_point;
    /// `operator new[](size, nothrow)`.
    new_array_nothrow(tag) = NewArrayNothrow, 2, new_array_nothrow_at_point;
    /// `operator new(size, alignment)`.
    new_aligned(alignment) = NewAligned, 2, new_aligned_at_point;
    /// `operator new[](size, alignment)`.
    new_array_aligned(alignment) = NewArrayAligned, 2, new_array_aligned_at_point;
    /// `operator new(size, alignment, nothrow)`.
    new_aligned_nothrow(alignment, tag) = NewAlignedNothrow, 3, new_aligned_nothrow_at_point;
    /// `operator new[](size, alignment, nothrow)`.
    new_array_aligned_nothrow(alignment, tag) = NewArrayAlignedNothrow, 3, new_array_aligned_nothrow_at_point;
}

/// Defines the entries of functions that free, and what they do in a page with a sampled block. They pass on all arguments as
/// they are.
macro_rules! delete {
    ($($(#[$doc:meta])* $name:ident = $function:ident, $in_page:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(block: *mut c_void, second: usize, third: usize) {
            pass_on_unless_in_page!(FOUND, Function::$function as usize * size_of::<usize>(), $in_page)
        }

        unsafe extern "C" fn $in_page(block: *mut c_void, second: usize, third: usize) {
            type Original = unsafe extern "C" fn(*mut c_void, usize, usize);
            calls::forget(block);
            let original = FOUND[Function::$function as usize].load(Relaxed);
            // SAFETY: the program's call, of the function with this name, which may have fewer arguments: they are in
            // registers. A slot leads here only if there is one.
            unsafe { std::mem::transmute::<*mut c_void, Original>(original)(block, second, third) };
        }
    )*};
}

delete! {
    /// `operator delete(block)`.
    delete = Delete, delete_in_page;
    /// `operator delete[](block)`.
    delete_array = DeleteArray, delete_array_in_page;
    /// `operator delete(block, nothrow)`.
    delete_nothrow = DeleteNothrow, delete_nothrow_in_page;
    /// `operator delete[](block, nothrow)`.
    delete_array_nothrow = DeleteArrayNothrow, delete_array_nothrow_in_page;
    /// `operator delete(block, size)`.
    delete_sized = DeleteSized, delete_sized_in_page;
    /// `operator delete[](block, size)`.
    delete_array_sized = DeleteArraySized, delete_array_sized_in_page;
    /// `operator delete(block, alignment)`.
    delete_aligned = DeleteAligned, delete_aligned_in_page;
    /// `operator delete[](block, alignment)`.
    delete_array_aligned = DeleteArrayAligned, delete_array_aligned_in_page;
    /// `operator delete(block, size, alignment)`.
    delete_sized_aligned = DeleteSizedAligned, delete_sized_aligned_in_page;
    /// `operator delete[](block, size, alignment)`.
    delete_array_sized_aligned = DeleteArraySizedAligned, delete_array_sized_aligned_in_page;
    /// `operator delete(block, alignment, nothrow)`.
    delete_aligned_nothrow = DeleteAlignedNothrow, delete_aligned_nothrow_in_page;
    /// `operator delete[](block, alignment, nothrow)`.
    delete_array_aligned_nothrow = DeleteArrayAlignedNothrow, delete_array_aligned_nothrow_in_page;
    /// `dallocx(block, flags)`.
    dallocx = Dallocx, dallocx_in_page;
    /// `sdallocx(block, size, flags)`.
    sdallocx = Sdallocx, sdallocx_in_page;
    /// `free_sized(block, size)`.
    free_sized = FreeSized, free_sized_in_page;
    /// `free_aligned_sized(block, alignment, size)`.
    free_aligned_sized = FreeAlignedSized, free_aligned_sized_in_page;
    /// `tc_free_sized(block, size)`.
    tc_free_sized = TcFreeSized, tc_free_sized_in_page;
}
