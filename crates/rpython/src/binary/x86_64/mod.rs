//! The code for x86-64. The list of the modules is in [`super`].

pub mod collector_memory;
mod control_flow;
pub mod debug_sections;
mod entry;
pub mod few_sites;
pub mod ignored_signals;
pub mod nursery_setters;
pub mod patching;
pub mod search;

use std::ops::Range;

/// The collector can be hooked.
pub const CAN_HOOK: bool = true;
/// It is sought in programs other than PyPy, too.
pub const IN_PROGRAMS: bool = true;

/// Relocation types of a slot that holds the address of an imported symbol.
pub const IMPORT_RELOCATIONS: [u32; 2] = [
    object::elf::R_X86_64_GLOB_DAT,
    object::elf::R_X86_64_JUMP_SLOT,
];

/// Thread-local memory of all libraries together is smaller than this.
const LARGEST_STATIC_TLS: usize = 64 << 10;

/// Fetches the data at an address into the cache before it is needed. The address may be unmapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

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
