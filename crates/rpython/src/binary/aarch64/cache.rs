//! The processor's cache.

/// Fetches the data at an address into the cache before it is needed. The address may be unmapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}
