//! The allocator inside of Apache Arrow's library: mimalloc, under names of its own.
//!
//! Since version 25, `libarrow` calls its mimalloc through import slots, by three functions that it defines and exports so that
//! tools can stand before them ([Arrow's issue 50083](https://github.com/apache/arrow/issues/50083)). The slots of that library
//! lead here ([`slots`](crate::slots)). A process with two such libraries has two allocators, and a block must go back to the one
//! that gave it: only the slots of the first library are changed.
//!
//! What mimalloc maps in such a call is not the program's: its blocks are sampled.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nthbyte_host::preload::Kind;

use crate::calls::{self, record_block};
use crate::objects::{Object, gnu_hash};
use crate::processor::{pass_caller, pass_on_unless_in_page};
use crate::thread::{self, Busy, ThreadState};
use crate::{mappings, sampler};

/// The names of the functions, in the order of [`FOUND`].
const NAMES: [&CStr; 3] = [
    c"arrow_mi_malloc_aligned",
    c"arrow_mi_realloc_aligned",
    c"arrow_mi_free",
];
const MALLOC: usize = 0;
const REALLOC: usize = 1;
const FREE: usize = 2;

/// The library's functions. They are known before the first slot leads here.
static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
/// Makes an object's functions the library's, if there is none yet. Returns whether they are: no two objects that are loaded define a
/// function at one address.
///
/// # Safety
/// The object is loaded, and this thread has the turn to change slots.
pub unsafe fn is_library(object: &Object) -> bool {
    let mut functions = [null_mut(); NAMES.len()];
    for (place, name) in functions.iter_mut().zip(NAMES) {
        // SAFETY: by the contract.
        match unsafe { object.definition(name, gnu_hash(name)) } {
            Some(function) if !function.is_null() => *place = function,
            _ => return false,
        }
    }
    if FOUND[MALLOC].load(Relaxed).is_null() {
        for (place, function) in FOUND.iter().zip(functions) {
            place.store(function, Release);
        }
    }
    FOUND.each_ref().map(|place| place.load(Relaxed)) == functions
}

/// This module's function in place of the library's function with this address; `None` if it is none of them.
pub fn replacement(address: usize) -> Option<usize> {
    let own = [
        malloc_aligned as *const (),
        realloc_aligned as *const (),
        free as *const (),
    ];
    let is_found = |place: &AtomicPtr<c_void>| place.load(Relaxed) as usize == address;
    let at = FOUND.iter().position(is_found)?;
    Some(own[at] as usize)
}

/// `arrow_mi_malloc_aligned`.
#[unsafe(naked)]
unsafe extern "C" fn malloc_aligned(size: usize, alignment: usize) -> *mut c_void {
    pass_caller!("", 2, malloc_from)
}

/// `arrow_mi_realloc_aligned`.
#[unsafe(naked)]
unsafe extern "C" fn realloc_aligned(
    block: *mut c_void,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    pass_caller!("", 3, realloc_from)
}

/// `arrow_mi_free`.
#[unsafe(naked)]
unsafe extern "C" fn free(block: *mut c_void) {
    pass_on_unless_in_page!(FOUND, FREE * size_of::<usize>(), free_in_page)
}

unsafe extern "C" fn malloc_from(size: usize, alignment: usize, caller: usize) -> *mut c_void {
    type Original = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    let original = FOUND[MALLOC].load(Acquire);
    // SAFETY: the library's call of its function, which has this type; the caller's own state.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, Original>(original);
        take(Kind::Malloc, size, caller, || original(size, alignment))
    }
}

unsafe extern "C" fn realloc_from(
    block: *mut c_void,
    size: usize,
    alignment: usize,
    caller: usize,
) -> *mut c_void {
    type Original = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
    let original = FOUND[REALLOC].load(Acquire);
    // SAFETY: as in `malloc_from`.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, Original>(original);
        take(Kind::Realloc, size, caller, || {
            calls::resize_with(block, size, || original(block, size, alignment))
        })
    }
}

unsafe extern "C" fn free_in_page(block: *mut c_void) {
    type Original = unsafe extern "C" fn(*mut c_void);
    calls::forget(block);
    let original = FOUND[FREE].load(Acquire);
    // SAFETY: as in `malloc_from`.
    unsafe { std::mem::transmute::<*mut c_void, Original>(original)(block) };
}

/// Makes a request, and records it if it is sampled.
///
/// # Safety
/// `request` gives a block of `size` bytes, or null.
unsafe fn take(
    kind: Kind,
    size: usize,
    caller: usize,
    request: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let thread: *mut ThreadState = thread::current();
    // SAFETY: the caller's own state.
    unsafe {
        let points = sampler::points_of(thread, size, caller);
        let block = {
            let _busy = Busy::begin(thread);
            request()
        };
        if points > 0 && !block.is_null() {
            record_block(thread, block, size, points, kind, mappings::is_large(size));
        }
        block
    }
}
