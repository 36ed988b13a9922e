//! Ways into the slow paths that note who called.
//!
//! Each stores the address to which the program's call will return in [`Heap::caller`], and jumps on. On entry that
//! address is on top of the stack (x86-64) or in the link register (AArch64), for the fast path comes here by
//! a jump, too. On other machines the caller stays unknown, which is 0.

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
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                "mov rax, [rsp]",
                "mov [rdi + {caller}], rax",
                "jmp {function}",
                caller = const core::mem::offset_of!(Heap, caller),
                function = sym slow::$name::<OBJECT>,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As for the function of this name in [`slow`].
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name<const OBJECT: bool>($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                "str x30, [x0, {caller}]",
                "b {function}",
                caller = const core::mem::offset_of!(Heap, caller),
                function = sym slow::$name::<OBJECT>,
            )
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        pub use crate::slow::$name;
    };
}

entry! {
    /// `malloc` of more than the small classes have.
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
