//! The identity of the calling thread, and the place of its static thread-local memory.

use std::ops::Range;

/// Thread-local memory of all libraries together is smaller than this.
const LARGEST_STATIC_TLS: usize = 64 << 10;

/// The address that identifies the calling thread. It costs one instruction.
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: on x86-64 Linux the first word of the thread's control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, pure, readonly)) };
    pointer
}

/// The calling thread's copy of a library's thread-local memory, if it lies at the same distance from the thread
/// pointer in every thread. Libraries that are loaded at the program's start have this memory right below the
/// thread pointer (System V ABI, "variant II"). For libraries that are loaded later it is allocated anywhere.
#[must_use]
pub fn static_thread_local(start: usize, length: usize) -> Option<Range<usize>> {
    let distance = thread_pointer().checked_sub(start)?;
    (start > 0 && (length..=LARGEST_STATIC_TLS).contains(&distance)).then(|| start..start + length)
}
