//! Replacements of the heap's functions that check at each call for the main interpreter's GIL.
//!
//! - What: the heap's functions for the domains `OBJ` and `MEM`: in place, or stored by the functions in place (debug
//!   hooks, `tracemalloc`) if these keep them in a `PyMemAllocatorEx` behind their context.
//! - Installed: when another interpreter is created while no GIL is held, so that the heap cannot be shared at once.
//! - Removed: never. Once the heap is shared, its own functions do the same checks, and other code may restore them.

use std::ffi::c_void;

use nthbyte_heap::{BlockDomain, DomainFunctions, Heap, Shared};

use super::allocators::DOMAINS;
use super::raw_calloc::{holds_main_gil, share_when_possible};
use crate::api::{AllocatorEx, Api};
use nthbyte_host::process::Probe;

/// The largest number of allocators that may be stored behind each other.
const DEEPEST: usize = 4;

/// Installs the functions. Needs no GIL: another thread that calls an allocator meanwhile may use old and new
/// functions, and any mixture is correct.
///
/// # Safety
/// The heap is installed, and any thread may call its fallbacks.
pub unsafe fn install(api: &Api, heap: *mut Heap) {
    for (heap_domain, domain, _) in DOMAINS {
        let functions = match heap_domain {
            BlockDomain::Object => functions::<true>(heap),
            BlockDomain::Memory => functions::<false>(heap),
        };
        let mut there = AllocatorEx::NONE;
        // SAFETY: the function only stores the current functions into `there`.
        unsafe { (api.PyMem_GetAllocator)(domain, &raw mut there) };
        match stored(&there, heap.cast()) {
            // SAFETY: this address holds an allocator in use with the heap's context. It was written to before, so it
            // is writable.
            Some(inner) => unsafe { (inner as *mut AllocatorEx).write_volatile(functions) },
            // SAFETY: any thread may call the functions.
            None => unsafe { (api.PyMem_SetAllocator)(domain, &mut { functions }) },
        }
    }
}

/// The address of the stored allocator with the heap's context. `None` if it is in place itself, or not found.
fn stored(there: &AllocatorEx, heap: *mut c_void) -> Option<usize> {
    let probe = Probe::new()?;
    let mut context = there.ctx;
    for _ in 0..DEEPEST {
        if context == heap || context.is_null() {
            return None;
        }
        // The allocator itself (`tracemalloc`), or a letter followed by the allocator (debug hooks).
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
    let DomainFunctions {
        malloc,
        calloc,
        realloc,
        free,
    } = DomainFunctions {
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

/// The heap, with a check for the GIL at each call.
///
/// # Safety
/// `heap` is the installed heap.
unsafe fn asking(heap: *mut c_void) -> Shared {
    share_when_possible();
    // SAFETY: by the contract. The heap becomes shared only under the main GIL. If this thread holds it, the state
    // cannot change now. If not, this thread reads only what stays readable before and after the sharing.
    unsafe { Shared::of(heap.cast(), holds_main_gil) }
}

unsafe extern "C" fn malloc<const OBJECT: bool>(heap: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).malloc(size, BlockDomain::of_objects(OBJECT)) }
}

unsafe extern "C" fn calloc<const OBJECT: bool>(
    heap: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).calloc(count, size, BlockDomain::of_objects(OBJECT)) }
}

unsafe extern "C" fn realloc<const OBJECT: bool>(
    heap: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).realloc(block, size, BlockDomain::of_objects(OBJECT)) }
}

unsafe extern "C" fn free<const OBJECT: bool>(heap: *mut c_void, block: *mut c_void) {
    // SAFETY: as CPython calls it.
    unsafe { asking(heap).free(block, BlockDomain::of_objects(OBJECT)) }
}
