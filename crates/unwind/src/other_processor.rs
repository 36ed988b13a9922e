//! A processor whose stacks are not walked.

use std::ffi::c_void;

pub(crate) use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as UnwindRegs, UnwinderAarch64 as Rules,
};

/// Whether walks are possible on this processor.
pub(crate) const IS_KNOWN: bool = false;
/// No file is for it.
pub(crate) const MACHINE: u16 = object::elf::EM_NONE;
/// Whether tables may have rules that framehop does not read.
pub(crate) const HAS_SIGNED_RETURNS: bool = false;
/// Bytes below the stack pointer that belong to the function that runs.
pub(crate) const RED_ZONE: usize = 0;

/// Nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) instruction: u64,
    pub(crate) pointer: u64,
}

impl Start {
    pub(crate) const WORDS: usize = 2;

    pub(crate) const fn here() -> Self {
        Self::from_words([0; 2])
    }

    pub(crate) const unsafe fn of_context(_context: *const c_void) -> Self {
        Self::from_words([0; 2])
    }

    pub(crate) fn registers(self) -> UnwindRegs {
        UnwindRegs::new(self.instruction, self.pointer, 0)
    }

    pub(crate) const fn to_words(self) -> [u64; Self::WORDS] {
        [self.instruction, self.pointer]
    }

    pub(crate) const fn from_words([instruction, pointer]: [u64; Self::WORDS]) -> Self {
        Self {
            instruction,
            pointer,
        }
    }
}

/// Nothing is known.
pub(crate) const fn description() -> Option<usize> {
    None
}
