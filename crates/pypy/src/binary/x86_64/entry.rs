//! What the library's imports of `malloc` and `calloc` lead to while they are redirected.
//!
//! Requests that are too small to be objects pass at two instructions. The others go to a hook, which gets the place
//! that the call returns to as one more argument.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::binary::incminimark::LARGE_OBJECT;

/// Called instead of `malloc(size)`; the second argument is where the call returns to.
pub type MallocHook = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Called instead of `calloc(count, size)`, whose product does not overflow; the third argument is where the call
/// returns to.
pub type CallocHook = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

static MALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);
static CALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);

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

unsafe extern "C" {
    fn nthbyte_malloc_entry();
    fn nthbyte_calloc_entry();
}

/// The address to be called like `malloc`; requests from [`LARGE_OBJECT`] bytes on go to the hook.
pub fn malloc(hook: MallocHook) -> usize {
    MALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_malloc_entry as *const () as usize
}

/// The address to be called like `calloc`; requests from [`LARGE_OBJECT`] bytes on go to the hook.
pub fn calloc(hook: CallocHook) -> usize {
    CALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_calloc_entry as *const () as usize
}
