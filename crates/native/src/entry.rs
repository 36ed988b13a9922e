//! The functions that replace others of the same name.
//!
//! Each is written in machine instructions, for two reasons: a call that is not sampled must cost as few of them as
//! possible, and the call must pass on to the replaced function with a jump, so that the stack looks as without us.
//!
//! The countdown `c` is at least 1, and a request of `s` bytes is sampled if `s >= c`. The subtraction `c - s` sets the
//! carry flag or the zero flag then. A test counts the instructions.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::mem::offset_of;

use nthbyte_requests::blocks::{BLOCKS, Blocks};
use nthbyte_requests::pages::PAGE_SHIFT;

use crate::calls::{HEADER, LEAST_CHUNK, count_of_page};
use crate::replaced::{REPLACED, Replaced};
use crate::thread::Thread;
use crate::{aligned, calls, mappings, replaced};

/// Says of functions that a use of their names inside this library means this library's own: see `build.rs`.
#[cfg(protected)]
macro_rules! own {
    ($($name:ident)*) => {
        $(std::arch::global_asm!(concat!(".globl ", stringify!($name)), concat!(".protected ", stringify!($name)));)*
    };
}

#[cfg(protected)]
own!(malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc);
#[cfg(protected)]
own!(mmap mmap64 mremap munmap);

/// `malloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    naked_asm!(
        "mov rax, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdi",
        "jbe 2f",
        "jmp qword ptr [rip + {replaced} + {offset}]",
        "2:",
        "mov rsi, qword ptr [rsp]",
        "jmp {slow}",
        replaced = sym REPLACED,
        offset = const offset_of!(Replaced, malloc),
        slow = sym calls::malloc,
    )
}

/// `free`. The word before a sampled block says that it is large (see [`calls`]), or the block is at the start of an OS page,
/// as null is; and the filter counts it in its page.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    naked_asm!(
        "test edi, 4095",
        "je 2f",
        "cmp qword ptr [rdi - {header}], {least}",
        "jae 2f",
        "jmp qword ptr [rip + {replaced} + {small}]",
        "2:",
        count_of_page!(),
        "jne 3f",
        "jmp qword ptr [rip + {replaced} + {free}]",
        "3:",
        "jmp {slow}",
        header = const HEADER,
        least = const LEAST_CHUNK,
        shift = const PAGE_SHIFT,
        blocks = sym BLOCKS,
        pages = const offset_of!(Blocks, pages),
        replaced = sym REPLACED,
        small = const offset_of!(Replaced, free_small),
        free = const offset_of!(Replaced, free),
        slow = sym calls::free,
    )
}

/// `calloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    naked_asm!(
        "mov rax, rdi",
        "mul rsi",
        "jo 3f",
        "mov rcx, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
        "sub qword ptr fs:[rcx], rax",
        "jbe 2f",
        "jmp qword ptr [rip + {replaced} + {offset}]",
        "2:",
        "mov rdx, qword ptr [rsp]",
        "jmp {slow}",
        // The product overflows: no allocator serves that.
        "3:",
        "jmp {too_large}",
        replaced = sym REPLACED,
        offset = const offset_of!(Replaced, calloc),
        slow = sym calls::calloc,
        too_large = sym calls::too_large,
    )
}

/// `realloc`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    naked_asm!(
        "mov rax, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
        "sub qword ptr fs:[rax], rsi",
        "jbe 2f",
        "test edi, 4095",
        "je 3f",
        "cmp qword ptr [rdi - {header}], {least}",
        "jae 3f",
        "jmp qword ptr [rip + {replaced} + {small}]",
        "3:",
        count_of_page!(),
        "jne 4f",
        "jmp qword ptr [rip + {replaced} + {realloc}]",
        "4:",
        "jmp {resize}",
        "2:",
        "mov rdx, qword ptr [rsp]",
        "jmp {slow}",
        header = const HEADER,
        least = const LEAST_CHUNK,
        shift = const PAGE_SHIFT,
        blocks = sym BLOCKS,
        pages = const offset_of!(Blocks, pages),
        replaced = sym REPLACED,
        small = const offset_of!(Replaced, realloc_small),
        realloc = const offset_of!(Replaced, realloc),
        slow = sym calls::realloc,
        resize = sym calls::resize,
    )
}

/// `reallocarray`. Passes the call on to the process's `realloc`, as the C library's function of this name does.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    naked_asm!(
        "mov rax, rsi",
        "mul rdx",
        "jo 2f",
        "mov rsi, rax",
        "jmp qword ptr [rip + {replaced} + {offset}]",
        "2:",
        "jmp {too_large}",
        replaced = sym REPLACED,
        offset = const offset_of!(Replaced, resize),
        too_large = sym calls::too_large,
    )
}

/// What `reallocarray` jumps to for the first time.
#[unsafe(naked)]
pub unsafe extern "C" fn first_resize(block: *mut c_void, size: usize) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        find = sym replaced::find_resize,
    )
}

/// Defines functions that pass the return address to another function, as its last argument.
macro_rules! with_caller {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $register:literal, $slow:path;)*) => {$(
        $(#[$attribute])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", qword ptr [rsp]"),
                "jmp {slow}",
                slow = sym $slow,
            )
        }
    )*};
}

pub(crate) use with_caller;

with_caller! {
    /// `posix_memalign`.
    #[unsafe(no_mangle)]
    posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> i32 = "rcx", aligned::posix_memalign;
    /// `aligned_alloc`.
    #[unsafe(no_mangle)]
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void = "rdx", aligned::aligned_alloc;
    /// `memalign`.
    #[unsafe(no_mangle)]
    memalign(alignment: usize, size: usize) -> *mut c_void = "rdx", aligned::memalign;
    /// `valloc`.
    #[unsafe(no_mangle)]
    valloc(size: usize) -> *mut c_void = "rsi", aligned::valloc;
    /// `pvalloc`.
    #[unsafe(no_mangle)]
    pvalloc(size: usize) -> *mut c_void = "rsi", aligned::pvalloc;
    /// `mremap`. Its fifth argument is only there with one flag; it is passed on in any case.
    #[unsafe(no_mangle)]
    mremap(start: *mut c_void, old: usize, new: usize, flags: i32, to: *mut c_void) -> *mut c_void
        = "r9", mappings::mremap;
}

/// Defines `mmap` and `mmap64`, which are the same function. Anonymous mappings count (`MAP_ANONYMOUS`, 0x20).
macro_rules! mmap {
    ($($name:ident)*) => {$(
        /// `mmap`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            size: usize,
            protection: i32,
            flags: i32,
            file: i32,
            offset: i64,
        ) -> *mut c_void {
            naked_asm!(
                "test ecx, 0x20",
                "je 3f",
                "mov rax, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
                "mov r10, qword ptr [rsp]",
                "mov qword ptr fs:[rax + {caller}], r10",
                "jmp {slow}",
                "3:",
                "jmp {plain}",
                caller = const offset_of!(Thread, caller),
                plain = sym mappings::mmap_plain,
                slow = sym mappings::mmap,
            )
        }
    )*};
}

mmap!(mmap mmap64);

/// `munmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, size: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { mappings::munmap(start, size) }
}
