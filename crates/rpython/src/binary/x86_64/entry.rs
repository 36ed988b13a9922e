//! The code of [`entry`](crate::binary::entry): two more instructions for a small request.

use crate::binary::entry::{CALLOC_HOOK, MALLOC_HOOK};
use crate::binary::incminimark::LARGE_OBJECT;

std::arch::global_asm!(
    ".p2align 4",
    ".hidden nthbyte_malloc_entry",
    ".globl nthbyte_malloc_entry",
    "nthbyte_malloc_entry:",
    "cmp rdi, {large}",
    "jb 2f",
    "mov rsi, [rsp]",
    "jmp qword ptr [rip + {malloc}]",
    "2:",
    "jmp qword ptr [rip + malloc@GOTPCREL]",
    ".p2align 4",
    ".hidden nthbyte_calloc_entry",
    ".globl nthbyte_calloc_entry",
    "nthbyte_calloc_entry:",
    "mov rax, rdi",
    "mul rsi",
    "jo 2f",
    "cmp rax, {large}",
    "jb 2f",
    "mov rdx, [rsp]",
    "jmp qword ptr [rip + {calloc}]",
    "2:",
    "jmp qword ptr [rip + calloc@GOTPCREL]",
    large = const LARGE_OBJECT,
    malloc = sym MALLOC_HOOK,
    calloc = sym CALLOC_HOOK,
);
