//! x86-64: what a walk begins with, and where the C library describes a thread.

use std::arch::asm;
use std::ffi::c_void;

pub(crate) use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegs, UnwinderX86_64 as Rules,
};
use object::elf;

/// Whether walks are possible on this processor.
pub(crate) const IS_KNOWN: bool = true;
/// The processor, in a file's header.
pub(crate) const MACHINE: u16 = elf::EM_X86_64;
/// Whether tables may have rules that framehop does not read ([`crate::signed_returns`]).
pub(crate) const HAS_SIGNED_RETURNS: bool = false;
/// Bytes below the stack pointer that belong to the function that runs (System V ABI, AMD64 supplement, 3.2.2).
pub(crate) const RED_ZONE: usize = 128;

/// Where a thread is in its code, and the registers from which a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) instruction: u64,
    pub(crate) pointer: u64,
    base: u64,
}

impl Start {
    /// The number of words of [`Self::to_words`].
    pub(crate) const WORDS: usize = 3;

    /// Of the function that this is inlined into.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (instruction, pointer, base);
        // SAFETY: reads three registers.
        unsafe {
            asm!(
                "lea {instruction}, [rip]",
                "mov {pointer}, rsp",
                "mov {base}, rbp",
                instruction = out(reg) instruction,
                pointer = out(reg) pointer,
                base = out(reg) base,
                options(nostack, nomem, preserves_flags),
            );
        }
        Self {
            instruction,
            pointer,
            base,
        }
    }

    /// Of the thread that a signal has interrupted.
    ///
    /// # Safety
    /// `context` is the third argument of a handler with `SA_SIGINFO`, which runs in this thread.
    pub(crate) unsafe fn of_context(context: *const c_void) -> Self {
        // SAFETY: by the contract.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let register = |number: i32| registers[number as usize].cast_unsigned();
        Self {
            instruction: register(libc::REG_RIP),
            pointer: register(libc::REG_RSP),
            base: register(libc::REG_RBP),
        }
    }

    pub(crate) fn registers(self) -> UnwindRegs {
        UnwindRegs::new(self.instruction, self.pointer, self.base)
    }

    pub(crate) const fn to_words(self) -> [u64; Self::WORDS] {
        [self.instruction, self.pointer, self.base]
    }

    pub(crate) const fn from_words([instruction, pointer, base]: [u64; Self::WORDS]) -> Self {
        Self {
            instruction,
            pointer,
            base,
        }
    }
}

/// The address of the C library's description of the calling thread. `None` in a thread that was not begun by the C
/// library, if it has thread-local data of its own.
pub(crate) fn description() -> Option<usize> {
    let (pointer, own): (usize, usize);
    // SAFETY: reads two words at the thread pointer: itself (System V ABI, AMD64 supplement, 3.4.6), and where glibc
    // keeps the same address for `pthread_self`.
    unsafe {
        asm!(
            "mov {pointer}, fs:[0]",
            "mov {own}, fs:[0x10]",
            pointer = out(reg) pointer,
            own = out(reg) own,
            options(nostack, readonly, preserves_flags),
        );
    }
    (pointer == own && own.is_multiple_of(size_of::<usize>())).then_some(own)
}
