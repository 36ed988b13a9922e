//! Functions in the place of the heap's that ask at each call for the main interpreter's GIL.
//!
//! - What: the functions of the domains `OBJ` and `MEM` that are the heap's: in place, or stored by what is in place
//!   (debug hooks, `tracemalloc`), as far as that keeps them in a `PyMemAllocatorEx` behind its context.
//! - When: another interpreter is made while no GIL is held, so that the heap cannot be shared at once.
//! - Undone: never. Once the heap is shared, its own functions are as good, and may be put back.

use std::ffi::c_void;

use nthbyte_heap::{Domain, Functions, Heap, Shared};

use super::allocators::DOMAINS;
use super::raw_calloc::{holds_main_gil, share_when_possible};
use crate::api::{AllocatorEx, Api};
use crate::memory::Probe;

/// So many allocators may be stored behind each other.
const DEEPEST: usize = 4;

/// Puts the functions in place. No GIL is needed: another thread that calls an allocator meanwhile may get functions of both,
/// and any mixture is right.
///
/// # Safety
/// The heap is in place, and its fallbacks may be called by everybody.
pub unsafe fn install(api: &Api, heap: *mut Heap) {
    for (heap_domain, domain, _) in DOMAINS {
        let functions = match heap_domain {
            Domain::Object => functions::<true>(heap),
            Domain::Memory => functions::<false>(heap),
        };
        let mut there = AllocatorEx::NONE;
        // SAFETY: writes the functions in place.
        unsafe { (api.PyMem_GetAllocator)(domain, &raw mut there) };
        match stored(&there, heap.cast()) {
            // SAFETY: an allocator with the heap's context was found there, and it is in use as such; so it can be
            // written to, as it was after it was made.
            Some(inner) => unsafe { (inner as *mut AllocatorEx).write_volatile(functions) },
            // SAFETY: the functions may be called by everybody.
            None => unsafe { (api.PyMem_SetAllocator)(domain, &mut { functions }) },
        }
    }
}

/// Where the allocator with the heap's context is stored behind another one. `None` if it is in place itself, or not found.
fn stored(there: &AllocatorEx, heap: *mut c_void) -> Option<usize> {
    let probe = Probe::new()?;
    let mut context = there.ctx;
    for _ in 0..DEEPEST {
        if context == heap || context.is_null() {
            return None;
        }
        // The allocator itself (`tracemalloc`), or a letter and the allocator (debug hooks).
        let words = probe.read::<[usize; 6]>(context as usize)?;
        let heap = heap as usize;
        let at = [0, 1].into_iter().find(|&at| words[at] == heap);
        if let Some(at) = at {
            return Some(context as usize + at * size_of::<usize>());
        }
        context = words[0] as *mut c_void;
    }
    None
}

fn functions<const OBJECT: bool>(heap: *mut Heap) -> AllocatorEx {
    let Functions {
        malloc,
        calloc,
        realloc,
        free,
    } = Functions {
        malloc: malloc::<OBJECT>,
        calloc: calloc::<OBJECT>,
        realloc: realloc::<OBJECT>,
        free: free::<OBJECT>,
    };
    AllocatorEx {
        ctx: heap.cast(),
        malloc: Some(malloc),
        calloc: Some(calloc),
        realloc: Some(realloc),
        free: Some(free),
    }
}

const fn domain(object: bool) -> Domain {
    if object {
        Domain::Object
    } else {
        Domain::Memory
    }
}

/// The heap, asked with care.
///
/// # Safety
/// `heap` is the heap in place.
unsafe fn asking(heap: *mut c_void) -> Shared {
    share_when_possible();
    // SAFETY: by the contract. It is shared under the main GIL: by this thread, before, or not while this one holds it; who does
    // not hold it needs nothing of the state but what stays readable in both places.
    unsafe { Shared::of(heap.cast(), holds_main_gil) }
}

unsafe extern "C" fn malloc<const OBJECT: bool>(heap: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).malloc(size, domain(OBJECT)) }
}

unsafe extern "C" fn calloc<const OBJECT: bool>(
    heap: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).calloc(count, size, domain(OBJECT)) }
}

unsafe extern "C" fn realloc<const OBJECT: bool>(
    heap: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).realloc(block, size, domain(OBJECT)) }
}

unsafe extern "C" fn free<const OBJECT: bool>(heap: *mut c_void, block: *mut c_void) {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).free(block, domain(OBJECT)) }
}
