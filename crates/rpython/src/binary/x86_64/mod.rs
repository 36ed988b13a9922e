//! The code for x86-64. The list of the modules is in [`super`].

pub mod cache;
pub mod collector_memory;
mod control_flow;
pub mod debug_sections;
pub mod entry;
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
