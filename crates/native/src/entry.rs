//! The functions that replace others of the same name.
//!
//! Each is written in machine instructions ([`processor`](crate::processor)), for two reasons: a call that is not sampled
//! must cost as few of them as possible, and the call must pass on to the replaced function with a jump, so that the stack
//! looks as without us. A test counts the instructions.
//!
//! The names belong to the whole process: if the agent has loaded this library, another library comes first in the search, and
//! `malloc` is its function here, too. So each function has a second name, which no other library sees ([`own`](crate::functions::own)).

use std::ffi::c_void;
use std::mem::offset_of;

use crate::calls::{HEADER, LEAST_CHUNK};
use crate::processor::{
    calloc, free, jump_to_decided, mmap, pass_caller, pass_on, realloc, reallocarray, request,
};
use crate::replaced::{REPLACED, Replaced};
use crate::thread::ThreadState;
use crate::{aligned, calls, mappings, replaced};

/// The second name of a function, as a label.
macro_rules! own_name {
    ($name:ident) => {
        concat!(
            ".globl nthbyte_native_",
            stringify!($name),
            "\n.hidden nthbyte_native_",
            stringify!($name),
            "\nnthbyte_native_",
            stringify!($name),
            ":"
        )
    };
}

/// `malloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    request!(
        own_name!(malloc),
        1,
        REPLACED,
        offset_of!(Replaced, malloc),
        calls::malloc
    )
}

/// `free`. The word before a sampled block says that it is large (see [`calls`]), or the block is at the start of an OS page,
/// as null is; and the filter counts it in its page.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    free!(
        own_name!(free),
        HEADER,
        LEAST_CHUNK,
        REPLACED,
        offset_of!(Replaced, free_small),
        offset_of!(Replaced, free),
        calls::free
    )
}

/// `calloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    calloc!(
        own_name!(calloc),
        REPLACED,
        offset_of!(Replaced, calloc),
        calls::calloc,
        calls::too_large
    )
}

/// `realloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    realloc!(
        own_name!(realloc),
        HEADER,
        LEAST_CHUNK,
        REPLACED,
        offset_of!(Replaced, realloc_small),
        offset_of!(Replaced, realloc),
        calls::realloc,
        calls::resize
    )
}

/// `reallocarray`. Passes the call on to the process's `realloc`, as the C library's function of this name does.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    reallocarray!(
        own_name!(reallocarray),
        REPLACED,
        offset_of!(Replaced, resize),
        calls::too_large
    )
}

/// What `reallocarray` jumps to for the first time. It has one name only.
#[unsafe(export_name = "nthbyte_native_first_resize")]
#[unsafe(naked)]
pub unsafe extern "C" fn first_resize(block: *mut c_void, size: usize) -> *mut c_void {
    jump_to_decided!("", replaced::find_resize, calls::resize)
}

/// Defines functions that pass the return address to another function, as its last argument: that with this number, from 0 on.
macro_rules! with_caller {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $number:tt, $slow:path;)*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            pass_caller!(own_name!($name), $number, $slow)
        }
    )*};
}

with_caller! {
    /// `posix_memalign`.
    posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> i32 = 3, aligned::posix_memalign;
    /// `aligned_alloc`.
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void = 2, aligned::aligned_alloc;
    /// `memalign`.
    memalign(alignment: usize, size: usize) -> *mut c_void = 2, aligned::memalign;
    /// `valloc`.
    valloc(size: usize) -> *mut c_void = 1, aligned::valloc;
    /// `pvalloc`.
    pvalloc(size: usize) -> *mut c_void = 1, aligned::pvalloc;
    /// `mremap`. Its fifth argument is only there with one flag; it is passed on in any case.
    mremap(start: *mut c_void, old: usize, new: usize, flags: i32, to: *mut c_void) -> *mut c_void
        = 5, mappings::mremap;
}

/// Defines `mmap` and `mmap64`, which are the same function.
macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// `mmap`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            size: usize,
            protection: i32,
            flags: i32,
            file: i32,
            offset: i64,
        ) -> *mut c_void {
            mmap!(own_name!($name), offset_of!(ThreadState, caller), mappings::mmap, mappings::mmap_plain)
        }
    )*};
}

mmaps!(mmap mmap64);

/// `munmap`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn munmap(start: *mut c_void, size: usize) -> i32 {
    pass_on!(own_name!(munmap), mappings::munmap)
}
