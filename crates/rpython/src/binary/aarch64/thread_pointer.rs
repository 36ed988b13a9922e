//! The identity of the calling thread, and the place of its static thread-local memory.

use std::ops::Range;

/// Thread-local memory of all libraries together is smaller than this.
const LARGEST_STATIC_TLS: usize = 64 << 10;

/// The address that identifies the calling thread. It costs one instruction.
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register that every process may read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, pure, preserves_flags));
    }
    pointer
}

/// The calling thread's copy of a library's thread-local memory, if it lies at the same distance from the thread
/// pointer in every thread. Libraries that are loaded at the program's start have this memory right above the
/// thread pointer (System V ABI, "variant I"). For libraries that are loaded later it is allocated anywhere.
#[must_use]
pub fn static_thread_local(start: usize, length: usize) -> Option<Range<usize>> {
    let distance = start.checked_sub(thread_pointer())?;
    (distance + length <= LARGEST_STATIC_TLS).then(|| start..start + length)
}
