//! AArch64: the bodies of the functions that replace others, in machine instructions.
//!
//! The countdown `c` is at least 1, and a request of `s` bytes is sampled if `s >= c`. The subtraction `c - s` clears the
//! carry flag or sets the zero flag then.
//!
//! A signal handler that calls `malloc` between the load and the store of the countdown has its own subtraction undone: the
//! next sample comes some bytes later, and nothing else. No standard lets a handler do that.
//!
//! Jumps go by `x16`, as in a procedure linkage table: where the processor checks where jumps lead (BTI), a function may
//! be entered so.

// Tests replace no functions.
#![cfg_attr(test, allow(unused_macros, unused_imports))]

pub use object::elf::{
    R_AARCH64_ABS64 as ADDRESS, R_AARCH64_GLOB_DAT as GLOB_DAT, R_AARCH64_JUMP_SLOT as JUMP_SLOT,
};

/// Instructions that load into `x9` the count of the page of the block `x0` in the filter ([`nthbyte_requests::pages`]).
/// They keep the arguments.
macro_rules! count_of_page {
    () => {
        "lsr w9, w0, #{shift}
         adrp x10, {blocks} + {pages}
         add x10, x10, :lo12:{blocks} + {pages}
         ldrb w9, [x10, x9]"
    };
}

/// Subtracts a request of `size` (a register) from the thread's countdown, and jumps to the label 2 at a sample point.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "mrs x11, tpidr_el0
             adrp x10, :gottprel:nthbyte_native_thread
             ldr x10, [x10, :gottprel_lo12:nthbyte_native_thread]
             ldr x12, [x11, x10]
             subs x12, x12, ",
            $size,
            "
             str x12, [x11, x10]
             b.ls 2f"
        )
    };
}

/// A jump to the function whose address is in a place of a variable, both by their names in the template.
macro_rules! jump_to {
    ($variable:literal, $offset:literal) => {
        concat!(
            "adrp x16, {",
            $variable,
            "} + {",
            $offset,
            "}
             ldr x16, [x16, :lo12:{",
            $variable,
            "} + {",
            $offset,
            "}]
             br x16"
        )
    };
}

/// A request whose first argument is its size: jumps to the function whose address is `offset` bytes behind a variable. At a
/// sample point it jumps to `at_point`, with the return address as a further argument of this number.
macro_rules! request {
    ($label:expr, $number:tt, $variable:path, $offset:expr, $at_point:path) => {
        std::arch::naked_asm!(
            $label,
            $crate::processor::count_down!("x0"),
            $crate::processor::jump_to!("variable", "offset"),
            "2:",
            concat!("mov x", $number, ", x30"),
            "b {at_point}",
            variable = sym $variable,
            offset = const $offset,
            at_point = sym $at_point,
        )
    };
}

/// Jumps to a function with the return address as a further argument of this number.
macro_rules! pass_caller {
    ($label:expr, $number:tt, $slow:path) => {
        std::arch::naked_asm!(
            $label,
            concat!("mov x", $number, ", x30"),
            "b {slow}",
            slow = sym $slow,
        )
    };
}

/// A jump to a function.
macro_rules! pass_on {
    ($label:expr, $function:path) => {
        std::arch::naked_asm!($label, "b {function}", function = sym $function)
    };
}

/// The body of a function that frees: jumps to the function whose address is `offset` bytes behind a variable, or to `in_page` if a
/// sampled block may be in the block's page. Keeps the arguments.
macro_rules! pass_on_unless_in_page {
    ($variable:path, $offset:expr, $in_page:path) => {
        std::arch::naked_asm!(
            $crate::processor::count_of_page!(),
            "cbnz w9, 2f",
            $crate::processor::jump_to!("variable", "offset"),
            "2:",
            "b {in_page}",
            shift = const nthbyte_requests::pages::PAGE_SHIFT,
            blocks = sym nthbyte_requests::blocks::BLOCKS,
            pages = const std::mem::offset_of!(nthbyte_requests::blocks::Blocks, pages),
            variable = sym $variable,
            offset = const $offset,
            in_page = sym $in_page,
        )
    };
}

/// `free`: jumps to the function at `small` in a variable if the word `header` bytes before the block is below `least`, to that at
/// `free` if no sampled block may be in the block's page, or to `slow`.
macro_rules! free {
    ($label:expr, $header:expr, $least:expr, $variable:path, $small:expr, $free:expr, $slow:path) => {
        std::arch::naked_asm!(
            $label,
            "tst x0, #{in_page}",
            "b.eq 2f",
            "ldur x9, [x0, #-{header}]",
            "cmp x9, #{least}",
            "b.hs 2f",
            $crate::processor::jump_to!("replaced", "small"),
            "2:",
            $crate::processor::count_of_page!(),
            "cbnz w9, 3f",
            $crate::processor::jump_to!("replaced", "free"),
            "3:",
            "b {slow}",
            in_page = const nthbyte_host::memory::SMALLEST_PAGE - 1,
            header = const $header,
            least = const $least,
            shift = const nthbyte_requests::pages::PAGE_SHIFT,
            blocks = sym nthbyte_requests::blocks::BLOCKS,
            pages = const std::mem::offset_of!(nthbyte_requests::blocks::Blocks, pages),
            replaced = sym $variable,
            small = const $small,
            free = const $free,
            slow = sym $slow,
        )
    };
}

/// `calloc`, as [`request`]. No allocator serves a product that overflows.
macro_rules! calloc {
    ($label:expr, $variable:path, $offset:expr, $slow:path, $too_large:path) => {
        std::arch::naked_asm!(
            $label,
            "umulh x9, x0, x1",
            "cbnz x9, 3f",
            "mul x9, x0, x1",
            $crate::processor::count_down!("x9"),
            $crate::processor::jump_to!("replaced", "offset"),
            "2:",
            "mov x2, x30",
            "b {slow}",
            "3:",
            "b {too_large}",
            replaced = sym $variable,
            offset = const $offset,
            slow = sym $slow,
            too_large = sym $too_large,
        )
    };
}

/// `realloc`: as [`request`] and then as [`free`].
macro_rules! realloc {
    ($label:expr, $header:expr, $least:expr, $variable:path, $small:expr, $realloc:expr, $slow:path, $resize:path) => {
        std::arch::naked_asm!(
            $label,
            $crate::processor::count_down!("x1"),
            "tst x0, #{in_page}",
            "b.eq 3f",
            "ldur x9, [x0, #-{header}]",
            "cmp x9, #{least}",
            "b.hs 3f",
            $crate::processor::jump_to!("replaced", "small"),
            "3:",
            $crate::processor::count_of_page!(),
            "cbnz w9, 4f",
            $crate::processor::jump_to!("replaced", "realloc"),
            "4:",
            "b {resize}",
            "2:",
            "mov x2, x30",
            "b {slow}",
            in_page = const nthbyte_host::memory::SMALLEST_PAGE - 1,
            header = const $header,
            least = const $least,
            shift = const nthbyte_requests::pages::PAGE_SHIFT,
            blocks = sym nthbyte_requests::blocks::BLOCKS,
            pages = const std::mem::offset_of!(nthbyte_requests::blocks::Blocks, pages),
            replaced = sym $variable,
            small = const $small,
            realloc = const $realloc,
            slow = sym $slow,
            resize = sym $resize,
        )
    };
}

/// `reallocarray`.
macro_rules! reallocarray {
    ($label:expr, $variable:path, $offset:expr, $too_large:path) => {
        std::arch::naked_asm!(
            $label,
            "umulh x9, x1, x2",
            "cbnz x9, 2f",
            "mul x1, x1, x2",
            $crate::processor::jump_to!("replaced", "offset"),
            "2:",
            "b {too_large}",
            replaced = sym $variable,
            offset = const $offset,
            too_large = sym $too_large,
        )
    };
}

/// `mmap`: `slow` for anonymous memory (`MAP_ANONYMOUS`), with the return address in the thread's state.
macro_rules! mmap {
    ($label:expr, $caller:expr, $slow:path, $plain:path) => {
        std::arch::naked_asm!(
            $label,
            "tst w3, #{anonymous}",
            "b.eq 3f",
            "mrs x9, tpidr_el0",
            "adrp x10, :gottprel:nthbyte_native_thread",
            "ldr x10, [x10, :gottprel_lo12:nthbyte_native_thread]",
            "add x9, x9, x10",
            "str x30, [x9, #{caller}]",
            "b {slow}",
            "3:",
            "b {plain}",
            anonymous = const libc::MAP_ANONYMOUS,
            caller = const $caller,
            plain = sym $plain,
            slow = sym $slow,
        )
    };
}

/// Calls `decide` with the two arguments, and jumps with them to the address that it returns, or to `otherwise` if it
/// returns null.
macro_rules! jump_to_decided {
    ($label:expr, $decide:path, $otherwise:path) => {
        std::arch::naked_asm!(
            $label,
            "stp x29, x30, [sp, #-32]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "bl {decide}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "b {otherwise}",
            decide = sym $decide,
            otherwise = sym $otherwise,
        )
    };
}

/// Stores 1 in a byte, and jumps to the function whose address is `offset` bytes behind a variable.
macro_rules! mark_and_pass_on {
    ($mark:path, $variable:path, $offset:expr) => {
        std::arch::naked_asm!(
            "mov w9, #1",
            "adrp x10, {mark}",
            "strb w9, [x10, :lo12:{mark}]",
            $crate::processor::jump_to!("variable", "offset"),
            mark = sym $mark,
            variable = sym $variable,
            offset = const $offset,
        )
    };
}

pub(crate) use {
    calloc, count_down, count_of_page, free, jump_to, jump_to_decided, mark_and_pass_on, mmap,
    pass_caller, pass_on, pass_on_unless_in_page, realloc, reallocarray, request,
};

/// The address of the thread's variable `nthbyte_native_thread`: reads the thread pointer, and the distance from it, which
/// the dynamic linker stored.
#[cfg(not(test))]
#[inline]
pub fn thread() -> usize {
    let thread: usize;
    // SAFETY: reads two words that are there in each thread.
    unsafe {
        std::arch::asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {distance}, :gottprel:nthbyte_native_thread",
            "ldr {distance}, [{distance}, :gottprel_lo12:nthbyte_native_thread]",
            "add {thread}, {thread}, {distance}",
            thread = out(reg) thread,
            distance = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    thread
}

/// Whether the processor compares tags of addresses with tags of memory for this process (MTE; glibc's tunable
/// `glibc.mem.tagging`). The word before a block has another tag than the block then, and must not be read by its address.
#[cfg(not(test))]
pub fn compares_tags() -> bool {
    /// Of `linux/prctl.h`.
    const PR_GET_TAGGED_ADDR_CTRL: i32 = 56;
    const PR_MTE_TCF_MASK: i32 = 0b110;
    // SAFETY: no preconditions.
    let control = unsafe { libc::prctl(PR_GET_TAGGED_ADDR_CTRL, 0, 0, 0, 0) };
    control > 0 && control & PR_MTE_TCF_MASK != 0
}
