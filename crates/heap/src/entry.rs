//! The entries of the slow paths, which note the allocation site.
//!
//! Each entry stores the return address of the program's call in [`Heap::site`] and jumps to the slow path. That
//! address is on top of the stack (x86-64) or in the link register (AArch64), because the fast path jumps here too.
//! On other processors the site is 0, which means unknown.
//!
//! Where it decides who serves a request, the site is also the last argument of the slow path. A thread without the lock
//! of the heap may make such a request, and writes to [`Heap::site`] at any time.

use crate::heap::Heap;
use crate::slow;
use core::ffi::c_void;

/// An entry, with the register of the argument after the last one on x86-64 and on AArch64, and the site where it is
/// unknown, if the slow path takes it.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), $x86:literal, $arm:literal $(, $unknown:literal)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of this name in [`slow`].
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(link_section = "nthbyte_hot")]
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                concat!("mov ", $x86, ", [rsp]"),
                concat!("mov [rdi + {site}], ", $x86),
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
                concat!("mov ", $arm, ", x30"),
                "b {function}",
                site = const core::mem::offset_of!(Heap, site),
                function = sym slow::$name::<OBJECT>,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of this name in [`slow`].
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            // SAFETY: by the contract.
            unsafe { slow::$name::<OBJECT>($($argument),* $(, $unknown)?) }
        }
    };
}

entry! {
    /// `malloc` of a size above the small classes.
    malloc_medium(_context: *mut c_void, _size: usize), "rdx", "x2", 0
}
entry! {
    /// `malloc` of a class whose list is empty.
    malloc_empty(_context: *mut c_void, _size: usize), "rdx", "x2"
}
entry! {
    /// `calloc`.
    calloc(_context: *mut c_void, _count: usize, _size: usize), "rcx", "x3", 0
}
entry! {
    /// `realloc`.
    realloc(_context: *mut c_void, _block: *mut c_void, _size: usize), "rcx", "x3", 0
}
