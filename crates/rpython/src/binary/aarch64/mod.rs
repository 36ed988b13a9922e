//! The code for AArch64. The list of the modules is in [`super`].

pub mod collector_memory;
mod control_flow;
pub mod debug_sections;
mod entry;
pub mod ignored_signals;
mod instruction;
pub mod patching;
pub mod search;
pub mod thread_pointer;

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

/// Fetches the data at an address into the cache before it is needed. The address may be unmapped.
#[inline]
pub fn prefetch<T>(address: *const T) {
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}
