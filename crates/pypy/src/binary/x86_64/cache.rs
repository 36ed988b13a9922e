//! The processor's cache.

/// Has what is at an address fetched into the cache: it will be needed. The address need not be mapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}
