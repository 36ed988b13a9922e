//! `dlsym` and `dlclose`, for the slots of libraries that are loaded later. The preloaded library does not have them.
//!
//! A library that was loaded by `dlopen` runs code of its own when its initialisers run, and when the program has looked
//! up a function in it: so `dlsym` is where its slots are changed. `dlopen` is left alone, because it asks who calls it:
//! the caller's `RPATH` tells where the libraries that are needed are found.
//!
//! `dlsym` with one of the handles that mean the caller's neighbours asks for its caller too. Such a call is passed on
//! with a jump, so that the return address is the caller's.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;

use crate::functions::Function;
use crate::processor::{jump_to_decided, mark_and_pass_on};
use crate::replaced::{FOUND, next};
use crate::slots::{follow, own_function};

/// Whether a library may have been unloaded. Another one may lie in its place then.
pub static UNLOADED: AtomicBool = AtomicBool::new(false);

/// `dlsym`.
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    jump_to_decided!("", decide, look_up)
}

/// The function to jump to; null for [`look_up`].
unsafe extern "C" fn decide(handle: *mut c_void) -> *mut c_void {
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        next(Function::Dlsym)
    } else {
        null_mut()
    }
}

/// `dlsym` in one library: the caller makes no difference.
unsafe extern "C" fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Original = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the replaced function, with the program's arguments: the name is a C string. The program keeps the library
    // loaded during the call.
    unsafe {
        follow(handle);
        let found =
            std::mem::transmute::<*mut c_void, Original>(next(Function::Dlsym))(handle, name);
        own_function(found as usize, CStr::from_ptr(name)) as *mut c_void
    }
}

/// `dlclose`. The mark comes before the call: a thread that finds a library done afterwards has a handle of its own.
#[unsafe(naked)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    mark_and_pass_on!(
        UNLOADED,
        FOUND,
        Function::Dlclose as usize * size_of::<usize>()
    )
}
