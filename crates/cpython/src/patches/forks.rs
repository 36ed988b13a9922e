//! `os.fork()` and `os.forkpty()`: when the session's writer thread may run again.
//!
//! - Why: CPython 3.12 and later count the process's threads after the fork, and warn of more than one. The session has
//!   stopped its thread before. It must come back when the count is over, and not before: the process may record nothing
//!   more for hours.
//! - What: the C functions of the built-ins; the Python objects stay the same. Our function calls the original one, which
//!   counts, and then lets the thread run.
//! - Installed: with the heap, before the first session; not on 3.11.
//! - Removed: never. Without a session, a fork costs two loads more.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

use nthbyte_session::{guarded, let_writer_run};

use super::definition;
use crate::api::{Function, Gil, METH_NOARGS, PyObject};
use crate::layout::Layout;

/// The first version that counts threads.
const FIRST_COUNTING: u32 = 0x030c_0000;

const NAMES: [&CStr; 2] = [c"fork", c"forkpty"];

static BEFORE: [OnceLock<Function>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];

/// Whether the functions were replaced, as far as they were found.
static ARE_INSTALLED: AtomicBool = AtomicBool::new(false);

/// The system's number of the thread that runs one of the built-ins; 0 if none does. If several do, one of them.
static INSIDE: AtomicI32 = AtomicI32::new(0);

/// Replaces the functions.
///
/// # Safety
/// The layout was verified.
pub unsafe fn install(gil: &Gil, layout: &Layout) {
    if gil.api().version() < FIRST_COUNTING {
        return;
    }
    let Some(module) = gil.import(c"posix") else {
        return;
    };
    let functions: [Function; NAMES.len()] = [fork::<0>, fork::<1>];
    for (at, name) in NAMES.into_iter().enumerate() {
        let Some(built_in) = module.attribute(name) else {
            continue;
        };
        // SAFETY: by the contract. The definition is a writable static variable.
        unsafe {
            if let Some(found) = definition(&built_in, layout)
                && found.flags == METH_NOARGS
                && found.function as usize != functions[at] as usize
            {
                BEFORE[at].get_or_init(|| found.function);
                found.replace(functions[at]);
            }
        }
    }
    ARE_INSTALLED.store(true, Relaxed);
}

/// Called in the parent, inside the C library's `fork`. Returns whether CPython will count the threads.
pub fn will_count() -> bool {
    if !ARE_INSTALLED.load(Relaxed) {
        return false;
    }
    // SAFETY: no preconditions.
    let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
    // A process in which another thread forks has two threads without ours: CPython warns in any case.
    let is_only = thread == process;
    // Native code that calls the C library's function counts nothing. If another library has replaced a built-in, it is not
    // known who calls.
    let is_known = BEFORE.iter().all(|before| before.get().is_some());
    is_only && (INSIDE.load(Relaxed) == thread || !is_known)
}

unsafe extern "C" fn fork<const AT: usize>(
    module: *mut PyObject,
    none: *mut PyObject,
) -> *mut PyObject {
    let Some(before) = BEFORE[AT].get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: no preconditions.
    let thread = unsafe { libc::gettid() };
    let outer = INSIDE.swap(thread, Relaxed);
    // SAFETY: the built-in's own function is called as CPython would.
    let result = unsafe { before(module, none) };
    // A function of `os.register_at_fork` may fork.
    INSIDE.store(if outer == thread { thread } else { 0 }, Relaxed);
    guarded(let_writer_run);
    result
}
