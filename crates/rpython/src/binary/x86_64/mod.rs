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
pub mod thread_pointer;

/// The collector can be hooked.
pub const CAN_HOOK: bool = true;
/// It is sought in programs other than PyPy, too.
pub const IN_PROGRAMS: bool = true;

/// Relocation types of a slot that holds the address of an imported symbol.
pub const IMPORT_RELOCATIONS: [u32; 2] = [
    object::elf::R_X86_64_GLOB_DAT,
    object::elf::R_X86_64_JUMP_SLOT,
];

/// Fetches the data at an address into the cache before it is needed. The address may be unmapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}
