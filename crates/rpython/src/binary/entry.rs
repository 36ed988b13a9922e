//! The functions that the library's imports of `malloc` and `calloc` refer to while they are redirected. Their code is the
//! processor's.
//!
//! Requests that are too small for a large object cost a few more instructions. Other requests call a hook, which gets
//! the return address of the call as an additional argument.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use libc::{calloc as nthbyte_calloc_entry, malloc as nthbyte_malloc_entry};

/// Called instead of `malloc(size)`; the second argument is the return address of the call.
pub type MallocHook = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Called instead of `calloc(count, size)`, whose product does not overflow; the third argument is the return
/// address of the call.
pub type CallocHook = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

pub(super) static MALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);
pub(super) static CALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe extern "C" {
    fn nthbyte_malloc_entry();
    fn nthbyte_calloc_entry();
}

/// The address of a function with the type of `malloc`. It passes requests of
/// [`LARGE_OBJECT`](super::LARGE_OBJECT) bytes or more to the hook.
pub fn malloc(hook: MallocHook) -> usize {
    MALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_malloc_entry as *const () as usize
}

/// The same with the type of `calloc`.
pub fn calloc(hook: CallocHook) -> usize {
    CALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_calloc_entry as *const () as usize
}
