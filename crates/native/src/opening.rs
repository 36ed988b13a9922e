//! `dlopen` and `dlsym`, for the slots of other libraries. The preloaded library does not have them.
//!
//! Both functions ask who calls them: `dlopen` searches for a name without a slash where the calling library says, and
//! `dlsym` has handles that mean the caller's neighbours. Such calls are passed on with a jump, so that the return
//! address is the caller's.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::slots::{own_function, redirect, replaced_function};

const DLOPEN: usize = 14;
const DLSYM: usize = 15;

/// Whether a library may have been loaded whose slots are not changed yet.
static PENDING: AtomicBool = AtomicBool::new(false);

/// `dlopen`.
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
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
        "jmp {open}",
        decide = sym decide_open,
        open = sym open,
    )
}

/// `dlsym`.
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
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
        "jmp {look_up}",
        decide = sym decide_look_up,
        look_up = sym look_up,
    )
}

/// The function to jump to; 0 for [`open`].
unsafe extern "C" fn decide_open(file: *const c_char) -> usize {
    let is_path = !file.is_null() && {
        // SAFETY: the program's argument, a string.
        let name = unsafe { CStr::from_ptr(file) }.to_bytes();
        // A dollar sign may stand for the folder of the caller.
        name.contains(&b'/') && !name.contains(&b'$')
    };
    if is_path {
        return 0;
    }
    PENDING.store(true, Relaxed);
    replaced_function(DLOPEN)
}

/// `dlopen` of a path: the caller makes no difference.
unsafe extern "C" fn open(file: *const c_char, flags: c_int) -> *mut c_void {
    type Original = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the replaced function, with the program's arguments.
    let handle =
        unsafe { std::mem::transmute::<usize, Original>(replaced_function(DLOPEN))(file, flags) };
    if !handle.is_null() {
        PENDING.store(false, Relaxed);
        redirect();
    }
    handle
}

/// The function to jump to; 0 for [`look_up`]. A library that was loaded before is called now at the earliest.
unsafe extern "C" fn decide_look_up(handle: *mut c_void) -> usize {
    if PENDING.swap(false, Relaxed) {
        redirect();
    }
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        replaced_function(DLSYM)
    } else {
        0
    }
}

/// `dlsym` in one library: the caller makes no difference.
unsafe extern "C" fn look_up(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Original = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the replaced function, with the program's arguments.
    let found =
        unsafe { std::mem::transmute::<usize, Original>(replaced_function(DLSYM))(handle, name) };
    own_function(found as usize) as *mut c_void
}
