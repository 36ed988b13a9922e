//! Marks what the heap takes from the C library, so that native memory does not count it again.
//!
//! - What: the heap's fallbacks. While one of them runs, the calling thread is marked as busy for the preloaded library
//!   (`nthbyte_session::native`). The heap samples these requests itself.
//! - Installed: with the heap, in a process that has preloaded the library.
//! - Removed: never.

use std::ffi::c_void;
use std::sync::OnceLock;

use nthbyte_heap::Fallback;
use nthbyte_session::native;

struct Marked {
    fallbacks: [Fallback; 2],
    busy: unsafe extern "C" fn() -> *mut u32,
}

// SAFETY: the contexts of the fallbacks are CPython's, for use by any thread.
unsafe impl Send for Marked {}
// SAFETY: as above.
unsafe impl Sync for Marked {}

static MARKED: OnceLock<Marked> = OnceLock::new();

/// The fallbacks, with marks if native memory can be sampled in this process.
#[must_use]
pub fn marked(fallbacks: [Fallback; 2]) -> [Fallback; 2] {
    let Some(interface) = native::interface() else {
        return fallbacks;
    };
    MARKED.get_or_init(|| Marked {
        fallbacks,
        busy: interface.busy,
    });
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

/// Calls `work` with the original fallback, while this thread is busy.
#[inline(always)]
fn busy(domain: usize, work: impl FnOnce(&Fallback) -> *mut c_void) -> *mut c_void {
    let Some(marked) = MARKED.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: the interface's function; the counter is the calling thread's own.
    unsafe {
        let busy = (marked.busy)();
        *busy += 1;
        let block = work(&marked.fallbacks[domain]);
        *busy -= 1;
        block
    }
}

unsafe extern "C" fn malloc<const DOMAIN: usize>(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the original function, with the arguments of its caller.
    busy(DOMAIN, |original| unsafe {
        (original.malloc)(context, size)
    })
}

unsafe extern "C" fn calloc<const DOMAIN: usize>(
    context: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    busy(DOMAIN, |original| unsafe {
        (original.calloc)(context, count, size)
    })
}

unsafe extern "C" fn realloc<const DOMAIN: usize>(
    context: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    busy(DOMAIN, |original| unsafe {
        (original.realloc)(context, block, size)
    })
}
