//! What `malloc`, `calloc`, `realloc` and `free` do at a sample point, and with blocks at the start of an OS page.
//!
//! A sampled block comes from `memalign` of the replaced allocator with the alignment of an OS page. It is an ordinary
//! block for `free` and `realloc` of that allocator.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_requests::blocks::{BLOCKS, Blocks};
use nthbyte_requests::pages::PAGE_SHIFT;
use nthbyte_session::native::{Kind, NOT_INTERESTED, Request};

use crate::replaced::{Functions, REPLACED, Replaced};
use crate::thread::{self, Busy, Thread};
use crate::{early, interface, mappings, replaced, sampler, zeroes};

/// The smallest OS page of this processor.
pub const PAGE: usize = 4096;
/// The smallest size of a block at the start of an OS page. glibc keeps freed blocks of up to 1,032 bytes as they are
/// and gives them out again first: one such block would make each `free` of a loop search. Larger ones join their free
/// neighbours, and do not begin at the start of a page any more.
pub const LEAST_MARKED: usize = 1056;

/// Instructions of a `free` that compare the count of the block's page in the filter ([`nthbyte_requests::pages`]) with 0.
/// They keep the arguments.
macro_rules! count_of_page {
    () => {
        "mov eax, edi
         shr eax, {shift}
         lea rcx, [rip + {blocks} + {pages}]
         cmp byte ptr [rcx + rax], 0"
    };
}
#[cfg(not(test))]
pub(crate) use count_of_page;

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
        let block = marked(&replaced, size);
        if block.is_null() {
            return (replaced.malloc)(size);
        }
        record(thread, block, size, points, Kind::Malloc);
        block
    }
}

/// `calloc`; the product does not overflow.
pub unsafe extern "C" fn calloc(count: usize, each: usize, caller: usize) -> *mut c_void {
    let size = count.wrapping_mul(each);
    let Some(replaced) = replaced::functions() else {
        return early::allocate(size);
    };
    // SAFETY: as in `malloc`. A marked block has `size` bytes.
    unsafe {
        let thread = thread::current();
        let points = sampler::points(thread, size, caller);
        if points == 0 {
            return (replaced.calloc)(count, each);
        }
        let mut block = null_mut();
        if searches_marks() {
            block = marked(&replaced, size);
            if !block.is_null() {
                zeroes::fill(block, size);
            }
        }
        if block.is_null() {
            block = (replaced.calloc)(count, each);
        }
        if !block.is_null() {
            record(thread, block, size, points, Kind::Calloc);
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
    // SAFETY: a thread has one `errno`.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    null_mut()
}

/// `realloc` at a sample point. The result counts as a new allocation of the whole size.
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    let Some(replaced) = replaced::functions() else {
        // SAFETY: inside the look-up, all blocks are early ones.
        return unsafe { early::resize(block, size) };
    };
    // SAFETY: as in `malloc`; the block is the program's.
    unsafe {
        let thread = thread::current();
        let points = sampler::points(thread, size, caller);
        if points == 0 || size == 0 {
            return realloc_of_page(block, size);
        }
        if block.is_null() {
            let fresh = marked(&replaced, size);
            if fresh.is_null() {
                return (replaced.realloc)(block, size);
            }
            record(thread, fresh, size, points, Kind::Realloc);
            return fresh;
        }
        let kept = contents(block).map_or(size, |bytes| bytes.min(size));
        let resized = realloc_of_page(block, size);
        if resized.is_null() {
            return resized;
        }
        let resized = mark(&replaced, resized, size, kept);
        record(thread, resized, size, points, Kind::Realloc);
        resized
    }
}

/// `realloc` without a sample point, of a block that may be sampled.
pub unsafe extern "C" fn realloc_of_page(block: *mut c_void, size: usize) -> *mut c_void {
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
        // Before the call: after it, another thread may get the same address.
        let sampled = BLOCKS.remove(block);
        let resized = (replaced.realloc)(block, size);
        if let Some(removed) = sampled {
            if resized.is_null() && size != 0 {
                BLOCKS.insert(block, removed.token, removed.detail);
            } else {
                report_freed(removed.token);
            }
        }
        resized
    }
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

/// `free` of a block that does not begin at the start of an OS page, while such a block may be a sampled one.
#[unsafe(naked)]
pub unsafe extern "C" fn free_in_any_page(block: *mut c_void) {
    naked_asm!(
        count_of_page!(),
        "jne 2f",
        "jmp qword ptr [rip + {replaced} + {offset}]",
        "2:",
        "jmp {slow}",
        shift = const PAGE_SHIFT,
        blocks = sym BLOCKS,
        pages = const offset_of!(Blocks, pages),
        replaced = sym REPLACED,
        offset = const offset_of!(Replaced, free),
        slow = sym free,
    )
}

/// Whether `free` searches only for blocks at the start of an OS page.
pub fn searches_marks() -> bool {
    let free = REPLACED.free.load(Relaxed);
    REPLACED.free_unaligned.load(Relaxed) == free
}

/// A block in which `free` recognises a sampled one; null if there is no memory.
///
/// # Safety
/// As `malloc`.
pub unsafe fn marked(replaced: &Functions, size: usize) -> *mut c_void {
    // SAFETY: by the contract; the alignment is a power of two.
    unsafe {
        match replaced.memalign {
            Some(memalign) if searches_marks() => memalign(PAGE, size.max(LEAST_MARKED)),
            _ => (replaced.malloc)(size),
        }
    }
}

/// How many bytes a block may have contents in; `None` if the allocator does not tell.
///
/// # Safety
/// The block is in use.
unsafe fn contents(block: *mut c_void) -> Option<usize> {
    if early::readable(block).is_some() {
        return None;
    }
    // SAFETY: by the contract; the block is the replaced allocator's.
    replaced::usable_size().map(|function| unsafe { function(block) })
}

/// Moves a block to the start of an OS page, if `free` searches only there. Without memory, the block stays.
///
/// A large block moves only once: `mremap`, which the C library resizes such blocks with, keeps the offset in the page. Only
/// its first `kept` bytes have contents: to copy the others would bring them into memory.
unsafe fn mark(replaced: &Functions, block: *mut c_void, size: usize, kept: usize) -> *mut c_void {
    if !searches_marks() || block as usize & (PAGE - 1) == 0 {
        return block;
    }
    // SAFETY: the block is in use and has `kept` bytes or more.
    unsafe {
        let moved = marked(replaced, size);
        if moved.is_null() {
            return block;
        }
        block.copy_to_nonoverlapping(moved, kept);
        (replaced.free)(block);
        moved
    }
}

/// Reports a sampled block, and remembers it for its free. Keeps `errno`.
///
/// # Safety
/// `thread` is the calling thread's state, and the block is in use.
pub unsafe fn record(
    thread: *mut Thread,
    block: *mut c_void,
    size: usize,
    points: u32,
    kind: Kind,
) {
    // SAFETY: the caller's own state.
    let _busy = unsafe { Busy::begin(thread) };
    keep_errno(|| {
        // An earlier block at this address was freed without a call of this library.
        forget(block);
        let token = interface::sampled(&Request {
            size: size as u64,
            // SAFETY: the caller's state; `points` were found.
            period: unsafe { sampler::period(thread) },
            points,
            kind,
            // SAFETY: the caller's own state.
            caller: unsafe { (*thread).caller },
        });
        if token != NOT_INTERESTED {
            BLOCKS.insert(block, token, size);
        }
        // SAFETY: as above.
        unsafe { sampler::follow_period(thread) };
    });
}

/// Removes a block from the table, and reports that it is freed if it was there. Keeps `errno`.
#[inline]
pub fn forget(block: *mut c_void) {
    if let Some(removed) = BLOCKS.remove(block) {
        report_freed(removed.token);
    }
}

/// Reports that memory in the table is freed, if it was sampled. Keeps `errno`.
pub fn report_freed(token: u64) {
    if token == NOT_INTERESTED {
        mappings::forget_unsampled();
        return;
    }
    // SAFETY: the calling thread's state.
    let _busy = unsafe { Busy::begin(thread::current()) };
    keep_errno(|| interface::freed(token));
}

/// Calls `work`, which may change `errno`.
pub fn keep_errno(work: impl FnOnce()) {
    // SAFETY: a thread has one `errno`.
    unsafe {
        let place: *mut c_int = libc::__errno_location();
        let before = *place;
        work();
        *place = before;
    }
}
