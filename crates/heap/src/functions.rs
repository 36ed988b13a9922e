//! The heap's functions, with the signatures of CPython's `PyMemAllocatorEx`.
//!
//! Contract: `context` is the address of a [`Heap`], and no two calls run at the same time (CPython holds the GIL).
//! A block may be freed or resized in either domain.

use crate::entry;
use crate::fast;
#[cfg(doc)]
use crate::heap::Heap;
use crate::large;
use crate::observer::BlockDomain;
use crate::slow;
use core::ffi::c_void;

/// The four functions of one domain.
#[derive(Clone, Copy, Debug)]
pub struct DomainFunctions {
    /// Allocates; null if there is no memory. A request of 0 bytes also gets a separate block.
    pub malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    /// Allocates zeroed memory; null if there is no memory or the product overflows.
    pub calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    /// Resizes a block; in place if it stays in its class or shrinks by less than a quarter. Null if there is no
    /// memory; then the block is unchanged.
    pub realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    /// Frees a block; null is ignored.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

macro_rules! export {
    ($object:literal, $malloc:ident, $free:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "nthbyte_hot")]
        unsafe extern "C" fn $malloc(context: *mut c_void, size: usize) -> *mut c_void {
            // SAFETY: by the contract of this module.
            unsafe {
                fast::malloc(
                    context,
                    size,
                    entry::malloc_medium::<$object>,
                    entry::malloc_empty::<$object>,
                )
            }
        }

        #[unsafe(no_mangle)]
        #[unsafe(link_section = "nthbyte_hot")]
        unsafe extern "C" fn $free(context: *mut c_void, block: *mut c_void) {
            // SAFETY: by the contract of this module.
            unsafe {
                fast::free(
                    context,
                    block,
                    large::free_foreign::<$object>,
                    slow::free_spent,
                )
            }
        }
    };
}

export!(true, nthbyte_heap_obj_malloc, nthbyte_heap_obj_free);
export!(false, nthbyte_heap_mem_malloc, nthbyte_heap_mem_free);

impl DomainFunctions {
    /// The functions of a domain. Their context is the address of a [`Heap`].
    #[must_use]
    pub const fn of(domain: BlockDomain) -> Self {
        match domain {
            BlockDomain::Object => Self {
                malloc: nthbyte_heap_obj_malloc,
                calloc: entry::calloc::<true>,
                realloc: entry::realloc::<true>,
                free: nthbyte_heap_obj_free,
            },
            BlockDomain::Memory => Self {
                malloc: nthbyte_heap_mem_malloc,
                calloc: entry::calloc::<false>,
                realloc: entry::realloc::<false>,
                free: nthbyte_heap_mem_free,
            },
        }
    }
}
