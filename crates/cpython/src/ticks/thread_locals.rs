//! Where the interpreter's thread-local variables lie.
//!
//! From 3.12 on, the handler reads such a variable. A program that has loaded CPython by `dlopen`, as `mod_wsgi` does, has
//! no room for it in a thread before the thread uses it first: the C library gets the room by `malloc` then, which the
//! handler may have interrupted.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use nthbyte_host::threads::BlockedSignals;

/// `RTLD_DI_TLS_DATA` of `dlinfo`: the calling thread's variables of a library, null if there is no room yet (dlfcn.h).
const TLS_DATA: c_int = 10;

unsafe extern "C" {
    fn dlinfo(handle: *mut c_void, request: c_int, answer: *mut c_void) -> c_int;
}

/// Whether a new thread has room for the thread-local variables of the image with this address. True if no thread can be
/// made, and if the image is the program itself.
pub fn are_in_each_thread(address: usize) -> bool {
    let mut image = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: a place for the answer, whose name is a string if it was found.
    let handle = unsafe {
        if libc::dladdr(address as *const c_void, image.as_mut_ptr()) == 0 {
            return true;
        }
        let name = image.assume_init().dli_fname;
        libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    };
    if handle.is_null() {
        return true;
    }
    let library = handle.expose_provenance();
    // The thread gets none of the program's signals.
    let blocked = BlockedSignals::all();
    let looking = std::thread::Builder::new().spawn(move || {
        let mut variables: *mut c_void = null_mut();
        let handle = std::ptr::with_exposed_provenance_mut(library);
        // SAFETY: the library stays loaded, and this is a place for the answer.
        let failed = unsafe { dlinfo(handle, TLS_DATA, (&raw mut variables).cast()) } != 0;
        failed || !variables.is_null()
    });
    drop(blocked);
    let found = looking.map_or(Ok(true), |looking| looking.join());
    // SAFETY: the handle is from above.
    unsafe { libc::dlclose(handle) };
    found.unwrap_or(true)
}
