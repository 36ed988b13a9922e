//! The functions that stand before mimalloc's. Their fast paths are what mimalloc does itself, instruction by instruction
//! (`mi_heap_malloc`, `mi_free`, `mi_heap_realloc` of `Objects/mimalloc/alloc.c`), but for one load more to find the thread state.

use std::ffi::c_void;

use nthbyte_heap::{BlockDomain, Fallback};

use crate::entry::{self, entry};
use crate::layout::{
    Block, HEAP_MEM, HUGE_BLOCK, Page, SMALL_MAX, V3_13, direct, heap_at, page_of, segment_of,
    thread_of,
};
use crate::slow;
use crate::thread::{thread_pointer, thread_state};

/// The functions for a domain.
pub const fn functions(domain: BlockDomain) -> Fallback {
    const fn of<const OBJECT: bool>() -> Fallback {
        Fallback {
            context: std::ptr::null_mut(),
            malloc: malloc::<OBJECT>,
            calloc: calloc::<OBJECT>,
            realloc: realloc::<OBJECT>,
            free: free::<OBJECT>,
        }
    }
    match domain {
        BlockDomain::Object => of::<true>(),
        BlockDomain::Memory => of::<false>(),
    }
}

/// The heap that serves the calling thread.
///
/// # Safety
/// The thread has a state.
#[inline(always)]
unsafe fn heap<const OBJECT: bool>() -> *mut u8 {
    // SAFETY: by the contract.
    unsafe {
        let state = thread_state();
        if OBJECT {
            state.add(V3_13.current_heap).cast::<*mut u8>().read()
        } else {
            heap_at(state, HEAP_MEM)
        }
    }
}

/// # Safety
/// The thread has a state.
#[inline(always)]
unsafe fn allocate<const OBJECT: bool, const ZERO: bool>(
    size: usize,
    small: impl FnOnce(*mut u8) -> *mut c_void,
    large: impl FnOnce(*mut u8) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: by the contract: the entry is a page's record, mimalloc's or ours, and the blocks on its list are free.
    unsafe {
        let heap = heap::<OBJECT>();
        if size > SMALL_MAX {
            return large(heap);
        }
        let page = *direct(heap)
            .cast::<u8>()
            .add((size + 7) & !7)
            .cast::<*mut Page>();
        let block = (*page).free;
        if block.is_null() {
            return small(heap);
        }
        (*page).used += 1;
        (*page).free = (*block).next;
        if ZERO {
            block
                .cast::<u8>()
                .write_bytes(0, (*page).block_size as usize);
        }
        block.cast()
    }
}

/// Allocates for the caller of our function.
///
/// # Safety
/// As for [`allocate`].
#[inline(always)]
unsafe fn take<const OBJECT: bool, const ZERO: bool>(size: usize) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe {
        allocate::<OBJECT, ZERO>(
            size,
            |heap| entry::small::<OBJECT, ZERO>(heap, size),
            |heap| entry::large::<OBJECT, ZERO>(heap, size),
        )
    }
}

/// # Safety
/// The block is in use, and of this domain, or null.
#[inline(always)]
unsafe fn release<const OBJECT: bool>(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: by the contract. The thread that the segment belongs to changes its pages without a lock.
    unsafe {
        let segment = segment_of(block);
        if thread_of(segment) != thread_pointer() {
            return slow::free::<OBJECT>(block);
        }
        let page = page_of(segment, block);
        // The last block in use: mimalloc retires the page.
        if (*page).flags != 0 || (*page).used == 1 {
            return slow::free::<OBJECT>(block);
        }
        (*block.cast::<Block>()).next = (*page).local_free;
        (*page).local_free = block.cast();
        (*page).used -= 1;
    }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn malloc<const OBJECT: bool>(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as CPython calls it: the thread has a state.
    unsafe { take::<OBJECT, false>(size) }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn calloc<const OBJECT: bool>(
    _: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return std::ptr::null_mut();
    };
    // SAFETY: as CPython calls it.
    unsafe { take::<OBJECT, true>(bytes) }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn free<const OBJECT: bool>(_: *mut c_void, block: *mut c_void) {
    // SAFETY: as CPython calls it.
    unsafe { release::<OBJECT>(block.cast()) }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn realloc<const OBJECT: bool>(
    _: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe {
        if block.is_null() {
            return take::<OBJECT, false>(size);
        }
        let block: *mut u8 = block.cast();
        let has = (*page_of(segment_of(block), block)).block_size;
        let is_enough = size <= has as usize && size >= has as usize / 2 && size > 0;
        if is_enough && has < HUGE_BLOCK {
            return block.cast();
        }
        to_other_block::<OBJECT>(block, size)
    }
}

entry! {
    /// See [`resize`].
    ///
    /// # Safety
    /// As for that function.
    to_other_block<OBJECT>(_block: *mut u8, _size: usize), "rdx", resize::<OBJECT>
}

/// Moves what is in a block to another one, or has mimalloc resize it.
///
/// # Safety
/// The block is in use, and of this domain; the thread has a state.
#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn resize<const OBJECT: bool>(
    block: *mut u8,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe {
        let has = (*page_of(segment_of(block), block)).block_size;
        if has >= HUGE_BLOCK {
            return slow::resize_huge::<OBJECT>(block, size, site);
        }
        let new = allocate::<OBJECT, false>(
            size,
            |heap| slow::small::<OBJECT, false>(heap, size, site),
            |heap| slow::large::<OBJECT, false>(heap, size, site),
        );
        if !new.is_null() {
            let to: *mut u8 = new.cast();
            if size == 0 {
                // As mimalloc: there are callers that expect a zero.
                to.write(0);
            }
            std::ptr::copy_nonoverlapping(block, to, size.min(has as usize));
            release::<OBJECT>(block);
        }
        new
    }
}

/// For tests: mimalloc's function behind ours.
#[cfg(feature = "test-seams")]
pub fn behind(domain: BlockDomain) -> Fallback {
    crate::settings::original(domain)
}
