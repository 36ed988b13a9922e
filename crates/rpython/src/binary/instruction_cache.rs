//! Code that was written to memory, for what executes it.

/// Makes code in a mapped range visible to what executes it (as `__clear_cache`).
#[cfg(target_arch = "aarch64")]
pub fn make_visible(start: usize, length: usize) {
    let kinds: usize;
    // SAFETY: Linux lets every process read the register.
    unsafe {
        std::arch::asm!("mrs {}, ctr_el0", out(reg) kinds, options(nostack, nomem, pure, preserves_flags));
    }
    let [instructions, data] = [kinds & 15, kinds >> 16 & 15].map(|words| 4 << words);
    let lines = |size: usize| (start & !(size - 1)..start + length).step_by(size);
    for line in lines(data) {
        // SAFETY: writes a line of mapped memory back, and changes nothing.
        unsafe { std::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in lines(instructions) {
        // SAFETY: the lines of the instruction cache are read again.
        unsafe { std::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: two barriers.
    unsafe { std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Makes code visible to what executes it: it always is.
#[cfg(not(target_arch = "aarch64"))]
pub const fn make_visible(_: usize, _: usize) {}
