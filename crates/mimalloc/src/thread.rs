//! The calling thread, by its thread pointer.

use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::Relaxed;

/// Distance from the thread pointer to the variable with the thread state. It is found before anything is installed, and
/// never changes.
pub static STATE: AtomicIsize = AtomicIsize::new(0);

/// The thread pointer, by which mimalloc knows a thread.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register, or the word that has its value, and changes nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, pure, readonly));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, pure, nomem));
    }
    pointer
}

/// The calling thread's state; null if it has none. One load more than CPython's own.
///
/// # Safety
/// [`STATE`] was found.
#[inline(always)]
pub unsafe fn thread_state() -> *mut u8 {
    let distance = STATE.load(Relaxed);
    #[cfg(target_arch = "x86_64")]
    {
        let state: *mut u8;
        // SAFETY: by the contract, a variable of the thread is there.
        unsafe {
            std::arch::asm!("mov {}, fs:[{}]", out(reg) state, in(reg) distance,
                options(nostack, preserves_flags, pure, readonly));
        }
        state
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the contract, a variable of the thread is there.
    unsafe {
        (thread_pointer().wrapping_add_signed(distance) as *const *mut u8).read()
    }
}
