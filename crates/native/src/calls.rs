//! What `malloc`, `calloc`, `realloc` and `free` do at a sample point, and with blocks that may be sampled.
//!
//! A sampled block is the replaced allocator's answer to the same request. glibc has the size of a block in the word before
//! it, so there a small request is enlarged to [`LEAST`] if it is sampled, and `free` sees in that word that a smaller block
//! is not sampled. Blocks of `LEAST` bytes or more lie where they would lie without this library.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::preload::{Kind, NOT_INTERESTED, Request};
use nthbyte_host::{keep_errno, probes, set_errno};
use nthbyte_requests::blocks::BLOCKS;
use nthbyte_sampling::{Distances, Weight};

use crate::processor::pass_on_unless_in_page;
use crate::replaced::{REPLACED, Replaced};
use crate::thread::{self, Busy, ThreadState};
use crate::{early, mappings, replaced, reports, sampler};

/// The smallest sampled block, in bytes, where `free` knows a block's size. glibc's `free` of a smaller one takes some
/// nanoseconds: it keeps blocks of up to 1,032 bytes as they are, in lists of the thread. For a larger one it looks at the
/// block's neighbours, and takes ten times as long as a look at the filter.
pub const LEAST: usize = LEAST_CHUNK - HEADER;
/// What the word before a block of [`LEAST`] bytes holds at least: the size with that word, and three bits below it
/// (`mchunk_size` of `malloc_chunk` in glibc's `malloc/malloc.c`).
pub const LEAST_CHUNK: usize = 1056;
/// The size of that word.
pub const HEADER: usize = 8;
/// The bits in it that are not the size (`SIZE_BITS`).
pub const FLAGS: usize = 7;

/// `malloc`.
pub unsafe extern "C" fn malloc(size: usize, caller: usize) -> *mut c_void {
    let Some(replaced) = replaced::functions() else {
        return early::allocate(size);
    };
    // SAFETY: the caller's own state; the program's call of `malloc`.
    unsafe {
        let thread = thread::current();
        let points = sampler::points(thread, size, caller);
        if points == 0 {
            return (replaced.malloc)(size);
        }
        let asked = enlarged(size);
        let block = (replaced.malloc)(asked);
        if !block.is_null() {
            record(thread, block, size, points, Kind::Malloc);
        } else if asked != size {
            return (replaced.malloc)(size);
        }
        block
    }
}

/// `calloc`; the product does not overflow.
pub unsafe extern "C" fn calloc(count: usize, each: usize, caller: usize) -> *mut c_void {
    let size = count.wrapping_mul(each);
    let Some(replaced) = replaced::functions() else {
        return early::allocate(size);
    };
    // SAFETY: as in `malloc`.
    unsafe {
        let thread = thread::current();
        let points = sampler::points(thread, size, caller);
        if points == 0 {
            return (replaced.calloc)(count, each);
        }
        let asked = enlarged(size);
        let block = (replaced.calloc)(1, asked);
        if !block.is_null() {
            record(thread, block, size, points, Kind::Calloc);
        } else if asked != size {
            return (replaced.calloc)(count, each);
        }
        block
    }
}

/// What `malloc` jumps to until the look-up is done: the dynamic linker may allocate in it. The thread's first request has
/// taken its countdown below zero, so this one does not come to [`malloc`].
pub unsafe extern "C" fn malloc_in_look_up(size: usize) -> *mut c_void {
    match replaced::functions() {
        None => early::allocate(size),
        // SAFETY: the caller's request.
        Some(replaced) => unsafe { (replaced.malloc)(size) },
    }
}

/// The same as [`malloc_in_look_up`], for `calloc`; the product does not overflow.
pub unsafe extern "C" fn calloc_in_look_up(count: usize, each: usize) -> *mut c_void {
    match replaced::functions() {
        None => early::allocate(count.wrapping_mul(each)),
        // SAFETY: the caller's request.
        Some(replaced) => unsafe { (replaced.calloc)(count, each) },
    }
}

/// A request whose size overflows.
pub unsafe extern "C" fn too_large() -> *mut c_void {
    set_errno(libc::ENOMEM);
    null_mut()
}

/// `realloc` at a sample point. The result counts as a new allocation of the whole size.
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    if replaced::functions().is_none() {
        // SAFETY: inside the look-up, all blocks are early ones.
        return unsafe { early::resize(block, size) };
    }
    // SAFETY: as in `malloc`; the block is the program's.
    unsafe {
        let thread = thread::current();
        let points = sampler::points(thread, size, caller);
        if points == 0 || size == 0 {
            return resize(block, size);
        }
        let asked = enlarged(size);
        let resized = resize(block, asked);
        if !resized.is_null() {
            record(thread, resized, size, points, Kind::Realloc);
        } else if asked != size {
            return resize(block, size);
        }
        resized
    }
}

/// `realloc` without a sample point, of a block that may be sampled.
pub unsafe extern "C" fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(replaced) = replaced::functions() else {
        // SAFETY: inside the look-up, all blocks are early ones.
        return unsafe { early::resize(block, size) };
    };
    // SAFETY: as in `malloc`; the block is the program's.
    unsafe {
        if let Some(readable) = early::readable(block) {
            let moved = (replaced.malloc)(size);
            if !moved.is_null() {
                block.copy_to_nonoverlapping(moved, readable.min(size));
            }
            return moved;
        }
        resize_with(block, size, || (replaced.realloc)(block, size))
    }
}

/// Resizes a block by `resize`, and reports that the old one is freed if it was sampled.
#[inline]
pub fn resize_with(
    block: *mut c_void,
    size: usize,
    resize: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    // Before the call: after it, another thread may get the same address.
    let sampled = BLOCKS.remove(block);
    if let Some(removed) = sampled {
        mappings::look(removed.token);
    }
    let resized = resize();
    if let Some(removed) = sampled {
        if resized.is_null() && size != 0 {
            BLOCKS.insert(block, removed.token, removed.detail);
        } else {
            report_freed(block, removed.token);
        }
    }
    resized
}

/// `free` of a block that may be sampled, or of null.
pub unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() || early::readable(block).is_some() {
        return;
    }
    let Some(replaced) = replaced::functions() else {
        // Inside the look-up, no block is the replaced allocator's.
        return;
    };
    forget(block);
    // SAFETY: the program's call of `free`.
    unsafe { (replaced.free)(block) };
}

/// `free` of a block that seems to be small, while such a block may be a sampled one.
#[unsafe(naked)]
pub unsafe extern "C" fn free_of_any_size(block: *mut c_void) {
    pass_on_unless_in_page!(REPLACED, offset_of!(Replaced, free), free)
}

/// What the replaced allocator is asked for, for a request that is sampled.
pub fn enlarged(size: usize) -> usize {
    let searches_large_only = REPLACED.free_small.load(Relaxed) == REPLACED.free.load(Relaxed);
    if searches_large_only {
        size.max(LEAST)
    } else {
        size
    }
}

/// Reports a sampled block, and remembers it for its free. Keeps `errno`.
///
/// # Safety
/// `thread` is the calling thread's state, and the block is in use.
pub unsafe fn record(
    thread: *mut ThreadState,
    block: *mut c_void,
    size: usize,
    points: u32,
    kind: Kind,
) {
    // SAFETY: by the contract.
    unsafe {
        record_block(
            thread,
            block,
            size,
            points,
            kind,
            mappings::is_lazy(block, size, kind),
        )
    };
}

/// The same as [`record`]; `is_lazy` tells whether the block counts with its touched part.
///
/// # Safety
/// As for [`record`].
pub unsafe fn record_block(
    thread: *mut ThreadState,
    block: *mut c_void,
    size: usize,
    points: u32,
    kind: Kind,
    is_lazy: bool,
) {
    // SAFETY: the caller's own state.
    let _busy = unsafe { Busy::begin(thread) };
    keep_errno(|| {
        // An earlier block at this address was freed without a call of this library.
        forget(block);
        // SAFETY: the caller's state; `points` were found.
        let period = unsafe { sampler::period(thread) };
        let token = reports::sampled(&Request {
            size: size as u64,
            period,
            points,
            kind,
            // SAFETY: the caller's own state.
            caller: unsafe { (*thread).caller },
            lazy: if is_lazy { block as usize } else { 0 },
        });
        if token != NOT_INTERESTED {
            BLOCKS.insert(block, token, size);
            let bytes = size as u64;
            probes::allocated(block as usize, bytes, || {
                Weight::of(Distances::Exponential, period, bytes, bytes, points).bytes
            });
        }
        // SAFETY: as above.
        unsafe { sampler::follow_period(thread) };
    });
}

/// Removes a block from the table, and reports that it is freed if it was there. Keeps `errno`.
#[inline]
pub fn forget(block: *mut c_void) {
    if let Some(removed) = BLOCKS.remove(block) {
        mappings::look(removed.token);
        report_freed(block, removed.token);
    }
}

/// Reports that memory in the table is freed, if it was sampled. Keeps `errno`.
pub fn report_freed(block: *mut c_void, token: u64) {
    if token == NOT_INTERESTED {
        mappings::forget_unsampled();
        return;
    }
    probes::freed(block as usize);
    // SAFETY: the calling thread's state.
    let _busy = unsafe { Busy::begin(thread::current()) };
    keep_errno(|| reports::freed(token));
}
