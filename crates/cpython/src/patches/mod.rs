//! The patches of the interpreter, one file each. Each file says what it replaces, when it is installed, and when it
//! is removed.
//!
//! | file | what | from | until |
//! |---|---|---|---|
//! | `allocators` | the functions of the domains `OBJ` and `MEM` | the first session | the process ends |
//! | `native_requests` | the heap's fallbacks | the heap is installed | the process ends |
//! | `raw_calloc` | `calloc` of the domain `RAW` (3.12 and later) | the first session | the process ends |
//! | `guarded` | the heap's functions | an interpreter is created without a GIL (3.13 and later) | the process ends |
//! | `dealloc` | `tp_dealloc` of the code type and of `type` | the first session | the process ends |
//! | `allocated_blocks` | the function of `sys.getallocatedblocks` | the first session | the process ends |
//! | `forks` | the functions of `os.fork` and `os.forkpty` (3.12 and later) | the first session | the process ends |
//! | `thread_starts` | the functions of `_thread` that start threads | the first session with time samples | the process ends |
//! | `own_requests` | nothing: the heap's check of callers above 512 bytes | the first session | the process ends |
//! | `unlocked` | nothing: the heap's check for the GIL (3.11) | the first session | the process ends |
//! | `attribute_cache` | entries of the cache of attributes whose names were sampled: they become empty | each look, while a session runs | the next look-up of the name |
//! | `gc_callbacks` | an entry in `gc.callbacks` | a session's start | its end |

use std::ffi::c_int;

use crate::api::{Function, MethodDef, Object};
use crate::layout::Layout;

/// The heap could not be mapped.
const NO_ADDRESSES: &str =
    "cannot reserve address space for the heap; raise the limits of memory (ulimit -v, ulimit -d)";

pub mod allocated_blocks;
pub mod allocators;
pub mod attribute_cache;
pub mod dealloc;
pub mod forks;
pub mod gc_callbacks;
mod guarded;
mod native_requests;
mod own_requests;
pub mod raw_calloc;
pub mod thread_starts;
mod unlocked;

/// The definition of a built-in function.
struct Definition {
    place: *mut MethodDef,
    function: Function,
    flags: c_int,
}

impl Definition {
    /// Replaces the C function.
    ///
    /// # Safety
    /// The function has the type that the flags say.
    unsafe fn replace(&self, function: Function) {
        // SAFETY: the definition is a writable static variable.
        unsafe { (&raw mut (*self.place).function).write_volatile(Some(function)) };
    }
}

/// The definition of a built-in function. `None` if it is something else, or if another library has replaced its
/// C function.
///
/// # Safety
/// The layout was verified.
unsafe fn definition(built_in: &Object<'_>, layout: &Layout) -> Option<Definition> {
    let (function, flags) = built_in.c_function()?;
    // SAFETY: by the contract. CPython confirms that this is a built-in function, so it has a definition at this
    // offset: a writable static variable. The definition's function shows that it is the right one.
    unsafe {
        let place = built_in
            .as_ptr()
            .byte_add(layout.function_definition)
            .cast::<*mut MethodDef>()
            .read();
        let defined = (*place).function.map(|function| function as usize);
        (defined == Some(function as usize)).then_some(Definition {
            place,
            function,
            flags,
        })
    }
}
