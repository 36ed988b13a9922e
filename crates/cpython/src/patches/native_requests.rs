//! Marks what the heap takes from the C library, so that native memory does not count it again.
//!
//! - What: the heap's fallbacks. While one of them runs, the requests of the calling thread are not observed
//!   (`nthbyte_session::native`). The heap samples these requests itself.
//! - Installed: with the heap.
//! - Removed: never.

use std::ffi::c_void;
use std::sync::OnceLock;

use nthbyte_heap::Fallback;
use nthbyte_session::native::unobserved;

struct Fallbacks([Fallback; 2]);

// SAFETY: the contexts of the fallbacks are CPython's, for use by any thread.
unsafe impl Send for Fallbacks {}
// SAFETY: as above.
unsafe impl Sync for Fallbacks {}

static ORIGINAL: OnceLock<Fallbacks> = OnceLock::new();

/// The fallbacks, with marks.
#[must_use]
pub fn marked(fallbacks: [Fallback; 2]) -> [Fallback; 2] {
    ORIGINAL.get_or_init(|| Fallbacks(fallbacks));
    [with_marks::<0>(fallbacks[0]), with_marks::<1>(fallbacks[1])]
}

fn with_marks<const DOMAIN: usize>(original: Fallback) -> Fallback {
    Fallback {
        context: original.context,
        malloc: malloc::<DOMAIN>,
        calloc: calloc::<DOMAIN>,
        realloc: realloc::<DOMAIN>,
        // A free samples nothing.
        free: original.free,
    }
}

/// Calls `work` with the original fallback, unobserved.
#[inline(always)]
fn original<const DOMAIN: usize>(work: impl FnOnce(&Fallback) -> *mut c_void) -> *mut c_void {
    let Some(Fallbacks(fallbacks)) = ORIGINAL.get() else {
        return std::ptr::null_mut();
    };
    unobserved(|| work(&fallbacks[DOMAIN]))
}

unsafe extern "C" fn malloc<const DOMAIN: usize>(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the original function, with the arguments of its caller.
    original::<DOMAIN>(|original| unsafe { (original.malloc)(context, size) })
}

unsafe extern "C" fn calloc<const DOMAIN: usize>(
    context: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    original::<DOMAIN>(|original| unsafe { (original.calloc)(context, count, size) })
}

unsafe extern "C" fn realloc<const DOMAIN: usize>(
    context: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    original::<DOMAIN>(|original| unsafe { (original.realloc)(context, block, size) })
}
