//! Callers that the heap trusts, by the size of their requests.

use core::cell::Cell;
#[cfg(doc)]
use nthbyte_heap::HeapConfig;

thread_local! {
    static TRUSTED: Cell<bool> = const { Cell::new(false) };
}

/// For [`HeapConfig::trusts`]: whether the next size is a [trusted](is_trusted) one.
#[allow(dead_code)] // the long run has the highest limits
pub unsafe extern "C" fn trusts(_site: usize) -> bool {
    TRUSTED.get()
}

/// Whether a request of this size comes from a trusted caller.
pub fn is_trusted(size: usize) -> bool {
    size.is_multiple_of(3)
}

/// The size of the next request.
pub fn next(size: usize) -> usize {
    TRUSTED.set(is_trusted(size));
    size
}
