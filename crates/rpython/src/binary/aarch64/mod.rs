//! The code for AArch64. The list of the modules is in [`super`].

pub mod collector_memory;
mod control_flow;
pub mod debug_sections;
mod entry;
pub mod ignored_signals;
mod instruction;
pub mod patching;
pub mod search;

use std::ops::Range;

pub use super::unsupported::{few_sites, nursery_setters};

/// The collector can be hooked.
pub const CAN_HOOK: bool = true;
/// It is not sought in programs other than PyPy.
pub const IN_PROGRAMS: bool = false;

/// Relocation types of a slot that holds the address of an imported symbol.
pub const IMPORT_RELOCATIONS: [u32; 2] = [
    object::elf::R_AARCH64_GLOB_DAT,
    object::elf::R_AARCH64_JUMP_SLOT,
];

/// Thread-local memory of all libraries together is smaller than this.
const LARGEST_STATIC_TLS: usize = 64 << 10;

/// Fetches the data at an address into the cache before it is needed. The address may be unmapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}

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
