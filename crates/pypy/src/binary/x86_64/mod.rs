//! x86-64: see [`super`] for the map.

pub mod cache;
mod control_flow;
pub mod entry;
pub mod patching;
pub mod search;
pub mod thread_pointer;

/// The collector can be hooked.
pub const CAN_HOOK: bool = true;

/// Relocations of a slot that holds the address of an imported symbol.
pub const IMPORT_RELOCATIONS: [u32; 2] = [
    object::elf::R_X86_64_GLOB_DAT,
    object::elf::R_X86_64_JUMP_SLOT,
];
