//! x86-64: the bodies of the functions that replace others, in machine instructions.
//!
//! The countdown `c` is at least 1, and a request of `s` bytes is sampled if `s >= c`. The subtraction `c - s` sets the
//! carry flag or the zero flag then.

// Tests replace no functions.
#![cfg_attr(test, allow(unused_macros, unused_imports))]

pub use object::elf::{
    R_X86_64_64 as ADDRESS, R_X86_64_GLOB_DAT as GLOB_DAT, R_X86_64_JUMP_SLOT as JUMP_SLOT,
};

/// The register of an argument, by its number.
macro_rules! argument {
    (1) => {
        "rsi"
    };
    (2) => {
        "rdx"
    };
    (3) => {
        "rcx"
    };
    (5) => {
        "r9"
    };
}

/// Instructions of a `free` that compare the count of the block's page in the filter ([`nthbyte_requests::pages`]) with 0.
/// They keep the arguments.
macro_rules! count_of_page {
    () => {
        "mov eax, edi
         shr eax, {shift}
         lea rcx, [rip + {blocks} + {pages}]
         cmp byte ptr [rcx + rax], 0"
    };
}

/// Subtracts a request of `size` (a register) from the thread's countdown, and jumps to the label 2 at a sample point.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "mov r11, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]
             sub qword ptr fs:[r11], ",
            $size,
            "
             jbe 2f"
        )
    };
}

/// A request whose first argument is its size: jumps to the function whose address is `offset` bytes behind a variable. At a
/// sample point it jumps to `at_point`, with the return address as a further argument of this number.
macro_rules! request {
    ($label:expr, $number:tt, $variable:path, $offset:expr, $at_point:path) => {
        std::arch::naked_asm!(
            $label,
            $crate::processor::count_down!("rdi"),
            "jmp qword ptr [rip + {variable} + {offset}]",
            "2:",
            concat!("mov ", $crate::processor::argument!($number), ", qword ptr [rsp]"),
            "jmp {at_point}",
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
            concat!("mov ", $crate::processor::argument!($number), ", qword ptr [rsp]"),
            "jmp {slow}",
            slow = sym $slow,
        )
    };
}

/// A jump to a function.
macro_rules! pass_on {
    ($label:expr, $function:path) => {
        std::arch::naked_asm!($label, "jmp {function}", function = sym $function)
    };
}

/// The body of a function that frees: jumps to the function whose address is `offset` bytes behind a variable, or to `in_page` if a
/// sampled block may be in the block's page. Keeps the arguments.
macro_rules! pass_on_unless_in_page {
    ($variable:path, $offset:expr, $in_page:path) => {
        std::arch::naked_asm!(
            $crate::processor::count_of_page!(),
            "jne 2f",
            "jmp qword ptr [rip + {variable} + {offset}]",
            "2:",
            "jmp {in_page}",
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
            "test edi, {in_page}",
            "je 2f",
            "cmp qword ptr [rdi - {header}], {least}",
            "jae 2f",
            "jmp qword ptr [rip + {replaced} + {small}]",
            "2:",
            $crate::processor::count_of_page!(),
            "jne 3f",
            "jmp qword ptr [rip + {replaced} + {free}]",
            "3:",
            "jmp {slow}",
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
            "mov rax, rdi",
            "mul rsi",
            "jo 3f",
            $crate::processor::count_down!("rax"),
            "jmp qword ptr [rip + {replaced} + {offset}]",
            "2:",
            "mov rdx, qword ptr [rsp]",
            "jmp {slow}",
            "3:",
            "jmp {too_large}",
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
            $crate::processor::count_down!("rsi"),
            "test edi, {in_page}",
            "je 3f",
            "cmp qword ptr [rdi - {header}], {least}",
            "jae 3f",
            "jmp qword ptr [rip + {replaced} + {small}]",
            "3:",
            $crate::processor::count_of_page!(),
            "jne 4f",
            "jmp qword ptr [rip + {replaced} + {realloc}]",
            "4:",
            "jmp {resize}",
            "2:",
            "mov rdx, qword ptr [rsp]",
            "jmp {slow}",
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
            "mov rax, rsi",
            "mul rdx",
            "jo 2f",
            "mov rsi, rax",
            "jmp qword ptr [rip + {replaced} + {offset}]",
            "2:",
            "jmp {too_large}",
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
            "test ecx, {anonymous}",
            "je 3f",
            "mov rax, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
            "mov r10, qword ptr [rsp]",
            "mov qword ptr fs:[rax + {caller}], r10",
            "jmp {slow}",
            "3:",
            "jmp {plain}",
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
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {decide}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "jmp {otherwise}",
            decide = sym $decide,
            otherwise = sym $otherwise,
        )
    };
}

/// Stores 1 in a byte, and jumps to the function whose address is `offset` bytes behind a variable.
macro_rules! mark_and_pass_on {
    ($mark:path, $variable:path, $offset:expr) => {
        std::arch::naked_asm!(
            "mov byte ptr [rip + {mark}], 1",
            "jmp qword ptr [rip + {variable} + {offset}]",
            mark = sym $mark,
            variable = sym $variable,
            offset = const $offset,
        )
    };
}

pub(crate) use {
    argument, calloc, count_down, count_of_page, free, jump_to_decided, mark_and_pass_on, mmap,
    pass_caller, pass_on, pass_on_unless_in_page, realloc, reallocarray, request,
};

/// The address of the thread's variable `nthbyte_native_thread`: reads the thread pointer, and the distance from it, which
/// the dynamic linker stored.
#[cfg(not(test))]
#[inline]
pub fn thread() -> usize {
    let thread;
    // SAFETY: reads two words that are there in each thread.
    unsafe {
        std::arch::asm!(
            "mov {thread}, qword ptr fs:[0]",
            "add {thread}, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
            thread = out(reg) thread,
            options(nostack, readonly),
        );
    }
    thread
}

/// Whether the processor compares tags of addresses with tags of memory: it does not.
#[cfg(not(test))]
pub const fn compares_tags() -> bool {
    false
}
