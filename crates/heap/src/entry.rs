//! The entries of the slow paths, which note the allocation site.
//!
//! Each entry stores the return address of the program's call in [`Heap::site`] and jumps to the slow path. That
//! address is on top of the stack (x86-64) or in the link register (AArch64), because the fast path jumps here too.
//! On other processors the site stays 0, which means unknown.

use crate::heap::Heap;
use crate::slow;
use core::ffi::c_void;

macro_rules! entry {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of this name in [`slow`].
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(link_section = "nthbyte_hot")]
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                "mov rax, [rsp]",
                "mov [rdi + {site}], rax",
                "jmp {function}",
                site = const core::mem::offset_of!(Heap, site),
                function = sym slow::$name::<OBJECT>,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of this name in [`slow`].
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(link_section = "nthbyte_hot")]
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                "str x30, [x0, {site}]",
                "b {function}",
                site = const core::mem::offset_of!(Heap, site),
                function = sym slow::$name::<OBJECT>,
            )
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        pub use crate::slow::$name;
    };
}

entry! {
    /// `malloc` of a size above the small classes.
    malloc_medium(_context: *mut c_void, _size: usize)
}
entry! {
    /// `malloc` of a class whose list is empty.
    malloc_empty(_context: *mut c_void, _size: usize)
}
entry! {
    /// `calloc`.
    calloc(_context: *mut c_void, _count: usize, _size: usize)
}
entry! {
    /// `realloc`.
    realloc(_context: *mut c_void, _block: *mut c_void, _size: usize)
}
