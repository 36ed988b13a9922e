//! The fast paths: what nearly every call runs, and all that it runs.
//!
//! Nothing in here knows of sampling. The instruction counts are kept by `tests/instructions.rs`, and
//! the listing is in docs/fast-path.md.
//!
//! All functions have the signatures of CPython's `PyMemAllocatorEx` and share one contract:
//! `context` is the address of a [`Heap`], and no two calls run at the same time (CPython holds the
//! GIL). A block may be freed or resized in either domain.

use crate::class::{ALIGNMENT, SMALL_LIMIT};
use crate::entry;
use crate::heap::Heap;
use crate::observer::Domain;
use crate::page::{Block, Page, Slot};
use crate::slow;
use core::ffi::c_void;

/// Allocates. Ten instructions on x86-64, with two tests.
#[inline(always)]
pub unsafe fn malloc<const OBJECT: bool>(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: by the contract above.
    unsafe {
        pop(
            context,
            size,
            entry::malloc_medium::<OBJECT>,
            entry::malloc_empty::<OBJECT>,
        )
    }
}

/// What `malloc` does, with its two ways out.
#[inline(always)]
pub unsafe fn pop(
    context: *mut c_void,
    size: usize,
    medium: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    empty: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: by the contract above. The class's slot lies at 16·class, the size rounded up.
    unsafe {
        if size > SMALL_LIMIT {
            return medium(context, size);
        }
        let slot: *mut Slot = context
            .byte_add((size + ALIGNMENT - 1) & !(ALIGNMENT - 1))
            .cast();
        let block = (*slot).head;
        if block.is_null() {
            return empty(context, size);
        }
        (*slot).head = (*block).next;
        block.cast()
    }
}

/// Frees. Fourteen instructions on x86-64, with two tests.
///
/// The allowance is counted before the block is written to, so that the contents of a sampled block
/// can still be read on the slow path.
#[inline(always)]
pub unsafe fn free<const OBJECT: bool>(context: *mut c_void, block: *mut c_void) {
    // SAFETY: by the contract above. A block in an arena has a page, and its page a slot.
    unsafe {
        if !Heap::table(context).holds(block.cast()) {
            return slow::free_foreign::<OBJECT>(context, block);
        }
        let block: *mut Block = block.cast();
        let slot = (*Page::of(block)).slot;
        let allowance = (*slot).allowance - 1;
        (*slot).allowance = allowance;
        if allowance == 0 {
            return slow::free_asking(context, block.cast());
        }
        (*block).next = (*slot).head;
        (*slot).head = block;
    }
}

/// The four functions of one domain.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Allocates; null if there is no memory. No bytes give a pointer of their own, too.
    pub malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    /// Allocates zeroed memory; null if there is none, or the product overflows.
    pub calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    /// Resizes, in place if the block stays in its class or shrinks by less than a quarter; null, and
    /// the block as it was, if there is no memory.
    pub realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    /// Frees; null is nothing.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

macro_rules! export {
    ($object:literal, $malloc:ident, $free:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $malloc(context: *mut c_void, size: usize) -> *mut c_void {
            // SAFETY: the caller keeps the contract of this module.
            unsafe { malloc::<$object>(context, size) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $free(context: *mut c_void, block: *mut c_void) {
            // SAFETY: the caller keeps the contract of this module.
            unsafe { free::<$object>(context, block) }
        }
    };
}

export!(true, nthbyte_heap_obj_malloc, nthbyte_heap_obj_free);
export!(false, nthbyte_heap_mem_malloc, nthbyte_heap_mem_free);

impl Functions {
    /// The functions of a domain, to be given the address of a [`Heap`] as their context.
    #[must_use]
    pub const fn of(domain: Domain) -> Self {
        match domain {
            Domain::Object => Self {
                malloc: nthbyte_heap_obj_malloc,
                calloc: entry::calloc::<true>,
                realloc: entry::realloc::<true>,
                free: nthbyte_heap_obj_free,
            },
            Domain::Memory => Self {
                malloc: nthbyte_heap_mem_malloc,
                calloc: entry::calloc::<false>,
                realloc: entry::realloc::<false>,
                free: nthbyte_heap_mem_free,
            },
        }
    }
}
