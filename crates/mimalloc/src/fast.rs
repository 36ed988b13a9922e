//! The functions that stand before mimalloc's. Their fast paths are what mimalloc does itself, instruction by instruction
//! (`mi_heap_malloc`, `mi_free`, `mi_heap_realloc` of `Objects/mimalloc/alloc.c`), but for one load more to find the thread state.

use std::ffi::c_void;

use nthbyte_heap::{BlockDomain, Fallback};

use crate::layout::{
    Block, HEAP_MEM, HUGE_BLOCK, SMALL_MAX, V3_13, direct, heap_at, page_of, segment_of, thread_of,
};
use crate::slow;
use crate::thread::{thread_pointer, thread_state};

const fn domain(object: bool) -> BlockDomain {
    if object {
        BlockDomain::Object
    } else {
        BlockDomain::Memory
    }
}

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
/// The heap is the calling thread's.
#[inline(always)]
unsafe fn allocate(heap: *mut u8, size: usize, zero: bool) -> *mut u8 {
    // SAFETY: by the contract: the entry is a page's record, mimalloc's or ours, and the blocks on its list are free.
    unsafe {
        if size > SMALL_MAX {
            return slow::allocate(heap, size, zero);
        }
        let page = *direct(heap)
            .cast::<u8>()
            .add((size + 7) & !7)
            .cast::<*mut crate::layout::Page>();
        let block = (*page).free;
        if block.is_null() {
            return slow::allocate(heap, size, zero);
        }
        (*page).used += 1;
        (*page).free = (*block).next;
        let block: *mut u8 = block.cast();
        if zero {
            block.write_bytes(0, (*page).block_size as usize);
        }
        block
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
            return slow::free(domain(OBJECT), block);
        }
        let page = page_of(segment, block);
        // The last block in use: mimalloc retires the page.
        if (*page).flags != 0 || (*page).used == 1 {
            return slow::free(domain(OBJECT), block);
        }
        (*block.cast::<Block>()).next = (*page).local_free;
        (*page).local_free = block.cast();
        (*page).used -= 1;
    }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn malloc<const OBJECT: bool>(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as CPython calls it: the thread has a state.
    unsafe { allocate(heap::<OBJECT>(), size, false).cast() }
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
    unsafe { allocate(heap::<OBJECT>(), bytes, true).cast() }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn free<const OBJECT: bool>(_: *mut c_void, block: *mut c_void) {
    // SAFETY: as CPython calls it.
    unsafe { release::<OBJECT>(block.cast()) }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn realloc<const OBJECT: bool>(
    context: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    if block.is_null() {
        // SAFETY: as CPython calls it.
        return unsafe { malloc::<OBJECT>(context, size) };
    }
    let block: *mut u8 = block.cast();
    // SAFETY: as CPython calls it.
    unsafe {
        let has = (*page_of(segment_of(block), block)).block_size;
        if has >= HUGE_BLOCK {
            return slow::resize_huge(domain(OBJECT), block, size).cast();
        }
        let has = has as usize;
        if size <= has && size >= has / 2 && size > 0 {
            return block.cast();
        }
        let new = allocate(heap::<OBJECT>(), size, false);
        if !new.is_null() {
            if size == 0 {
                // As mimalloc: there are callers that expect a zero.
                new.write(0);
            }
            std::ptr::copy_nonoverlapping(block, new, size.min(has));
            release::<OBJECT>(block);
        }
        new.cast()
    }
}

/// For tests: mimalloc's function behind ours.
#[cfg(feature = "test-seams")]
pub fn behind(domain: BlockDomain) -> Fallback {
    crate::settings::original(domain)
}
