//! AArch64: what a walk begins with, and where the C library describes a thread.

use std::arch::asm;
use std::ffi::c_void;

use framehop::aarch64::PtrAuthMask;
pub(crate) use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as UnwindRegs, UnwinderAarch64 as Rules,
};
use object::elf;

/// Whether walks are possible on this processor.
pub(crate) const IS_KNOWN: bool = true;
/// The processor, in a file's header.
pub(crate) const MACHINE: u16 = elf::EM_AARCH64;
/// Whether tables may have rules that framehop does not read ([`crate::signed_returns`]).
pub(crate) const HAS_SIGNED_RETURNS: bool = true;
/// Bytes below the stack pointer that belong to the function that runs: none (Procedure Call Standard for the Arm
/// 64-bit Architecture, 6.4.5.1).
pub(crate) const RED_ZONE: usize = 0;

/// The bits of an address of code. The kernel gives a process 48 of them, unless it asks for more where it maps memory; those above are a
/// signature in a return address that is authenticated (Documentation/arch/arm64/pointer-authentication.rst).
const ADDRESS: PtrAuthMask = PtrAuthMask(u64::MAX >> 16);

/// Where a thread is in its code, and the registers from which a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) instruction: u64,
    pub(crate) pointer: u64,
    frame: u64,
    link: u64,
}

impl Start {
    /// The number of words of [`Self::to_words`].
    pub(crate) const WORDS: usize = 4;

    /// Of the function that this is inlined into.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (instruction, pointer, frame, link);
        // SAFETY: reads four registers.
        unsafe {
            asm!(
                "adr {instruction}, .",
                "mov {pointer}, sp",
                "mov {frame}, x29",
                "mov {link}, x30",
                instruction = out(reg) instruction,
                pointer = out(reg) pointer,
                frame = out(reg) frame,
                link = out(reg) link,
                options(nostack, nomem, preserves_flags),
            );
        }
        Self {
            instruction,
            pointer,
            frame,
            link,
        }
    }

    /// Of the thread that a signal has interrupted.
    ///
    /// # Safety
    /// `context` is the third argument of a handler with `SA_SIGINFO`, which runs in this thread.
    pub(crate) unsafe fn of_context(context: *const c_void) -> Self {
        // SAFETY: by the contract.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        Self {
            instruction: machine.pc,
            pointer: machine.sp,
            frame: machine.regs[29],
            link: machine.regs[30],
        }
    }

    pub(crate) fn registers(self) -> UnwindRegs {
        UnwindRegs::new_with_ptr_auth_mask(ADDRESS, self.link, self.pointer, self.frame)
    }

    pub(crate) const fn to_words(self) -> [u64; Self::WORDS] {
        [self.instruction, self.pointer, self.frame, self.link]
    }

    pub(crate) const fn from_words(
        [instruction, pointer, frame, link]: [u64; Self::WORDS],
    ) -> Self {
        Self {
            instruction,
            pointer,
            frame,
            link,
        }
    }
}

/// The address of the C library's description of the calling thread. It ends where the thread pointer points to (glibc's `TLS_TCB_AT_TP`
/// is not set; `sysdeps/aarch64/nptl/tls.h`), so `pthread_self` tells. `None` in a thread that was not begun by the C library.
pub(crate) fn description() -> Option<usize> {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!(
            "mrs {pointer}, tpidr_el0",
            pointer = out(reg) pointer,
            options(nostack, nomem, preserves_flags),
        );
    }
    // SAFETY: no preconditions. It subtracts the size of the description from the thread pointer.
    let own = unsafe { libc::pthread_self() } as usize;
    (own < pointer && own.is_multiple_of(size_of::<usize>())).then_some(own)
}
