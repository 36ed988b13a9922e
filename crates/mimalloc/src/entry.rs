//! The entries of the slow paths, which note the allocation site.
//!
//! Each entry passes the return address of the program's call as one more argument, and jumps to the slow path. The address is on top of
//! the stack, because the fast path jumps here too. On other processors the site is 0, which means unknown.

use std::ffi::c_void;

use crate::slow;

/// An entry, with the register of the argument after the last one.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident<$($parameter:ident),*>($($argument:ident: $type:ty),*), $register:literal, $function:path) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(link_section = "nthbyte_hot")]
        pub unsafe extern "C" fn $name<$(const $parameter: bool),*>($($argument: $type),*) -> *mut c_void {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"),
                "jmp {function}",
                function = sym $function,
            )
        }

        $(#[$doc])*
        #[cfg(not(target_arch = "x86_64"))]
        pub unsafe extern "C" fn $name<$(const $parameter: bool),*>($($argument: $type),*) -> *mut c_void {
            // SAFETY: by the contract.
            unsafe { $function($($argument,)* 0) }
        }
    };
}
pub(crate) use entry;

entry! {
    /// See [`slow::small`].
    ///
    /// # Safety
    /// As for that function.
    small<OBJECT, ZERO>(_heap: *mut u8, _size: usize), "rdx", slow::small::<OBJECT, ZERO>
}
entry! {
    /// See [`slow::large`].
    ///
    /// # Safety
    /// As for that function.
    large<OBJECT, ZERO>(_heap: *mut u8, _size: usize), "rdx", slow::large::<OBJECT, ZERO>
}
