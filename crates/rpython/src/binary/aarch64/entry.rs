//! The functions that the library's imports of `malloc` and `calloc` refer to while they are redirected.
//!
//! Requests that are too small for a large object cost a few more instructions. Other requests call a hook, which gets
//! the return address of the call as an additional argument.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::binary::incminimark::LARGE_OBJECT;

/// Called instead of `malloc(size)`; the second argument is the return address of the call.
pub type MallocHook = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// Called instead of `calloc(count, size)`, whose product does not overflow; the third argument is the return
/// address of the call.
pub type CallocHook = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

static MALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);
static CALLOC_HOOK: AtomicUsize = AtomicUsize::new(0);

// x16 and x17 are free at a call of another library. `hint #34` is a landing place of indirect calls (`bti c`).
std::arch::global_asm!(
    ".p2align 4",
    ".hidden nthbyte_malloc_entry",
    ".globl nthbyte_malloc_entry",
    "nthbyte_malloc_entry:",
    "hint #34",
    "movz x16, #{low}",
    "movk x16, #{high}, lsl #16",
    "cmp x0, x16",
    "b.lo 2f",
    "mov x1, x30",
    "adrp x16, {malloc}",
    "ldr x16, [x16, #:lo12:{malloc}]",
    "br x16",
    "2:",
    "b malloc",
    ".p2align 4",
    ".hidden nthbyte_calloc_entry",
    ".globl nthbyte_calloc_entry",
    "nthbyte_calloc_entry:",
    "hint #34",
    "umulh x16, x0, x1",
    "cbnz x16, 2f",
    "mul x17, x0, x1",
    "movz x16, #{low}",
    "movk x16, #{high}, lsl #16",
    "cmp x17, x16",
    "b.lo 2f",
    "mov x2, x30",
    "adrp x16, {calloc}",
    "ldr x16, [x16, #:lo12:{calloc}]",
    "br x16",
    "2:",
    "b calloc",
    low = const LARGE_OBJECT & 0xffff,
    high = const LARGE_OBJECT >> 16,
    malloc = sym MALLOC_HOOK,
    calloc = sym CALLOC_HOOK,
);

unsafe extern "C" {
    fn nthbyte_malloc_entry();
    fn nthbyte_calloc_entry();
}

/// The address of a function with the type of `malloc`. It passes requests of [`LARGE_OBJECT`]
/// bytes or more to the hook.
pub fn malloc(hook: MallocHook) -> usize {
    MALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_malloc_entry as *const () as usize
}

/// The address of a function with the type of `calloc`. It passes requests of [`LARGE_OBJECT`]
/// bytes or more to the hook.
pub fn calloc(hook: CallocHook) -> usize {
    CALLOC_HOOK.store(hook as usize, Ordering::Release);
    nthbyte_calloc_entry as *const () as usize
}
