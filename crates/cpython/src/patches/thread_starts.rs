//! The functions of `_thread` that start threads: a new thread needs a timer for its time samples.
//!
//! - What: the C functions of the built-ins; the Python objects stay the same. Our function calls the original one, then
//!   the agent. Threads that are started without these functions are found a little later.
//! - Installed: at the start of the first session with time samples.
//! - Removed: never. Without time samples, the cost is one load for each started thread.

use std::ffi::CStr;
use std::sync::OnceLock;

use super::definition;
use crate::api::{Function, Gil, METH_KEYWORDS, METH_VARARGS, PyObject};
use crate::layout::Layout;

/// Called in the thread that has started another one. Must not panic.
pub type ThreadStartHandler = fn();

/// The built-ins. Their names in the interpreter are all in `_thread`; the last one exists from 3.13 on.
const NAMES: [&CStr; 3] = [c"start_new_thread", c"start_new", c"start_joinable_thread"];

type WithKeywords =
    unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

#[derive(Clone, Copy)]
struct Before {
    function: Function,
    handler: ThreadStartHandler,
}

static BEFORE: [OnceLock<Before>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];

/// Replaces the functions. Leaves alone those that another library has replaced already.
///
/// # Safety
/// The layout was verified.
pub unsafe fn install(gil: &Gil, layout: &Layout, handler: ThreadStartHandler) {
    let Some(module) = gil.import(c"_thread") else {
        return;
    };
    let plain: [Function; NAMES.len()] = [start::<0>, start::<1>, start::<2>];
    let with_keywords: [WithKeywords; NAMES.len()] = [
        start_with_keywords::<0>,
        start_with_keywords::<1>,
        start_with_keywords::<2>,
    ];
    for (at, name) in NAMES.into_iter().enumerate() {
        let Some(built_in) = module.attribute(name) else {
            continue;
        };
        // SAFETY: by the contract.
        let Some(found) = (unsafe { definition(&built_in, layout) }) else {
            continue;
        };
        let ours = match found.flags {
            METH_VARARGS => plain[at],
            // SAFETY: functions with these flags get a third argument, and CPython casts them in the same way.
            flags if flags == METH_VARARGS | METH_KEYWORDS => unsafe {
                std::mem::transmute::<WithKeywords, Function>(with_keywords[at])
            },
            _ => continue,
        };
        let function = found.function;
        if function as usize != ours as usize {
            BEFORE[at].get_or_init(|| Before { function, handler });
            // SAFETY: ours has the type that the flags say.
            unsafe { found.replace(ours) };
        }
    }
}

unsafe extern "C" fn start<const AT: usize>(
    module: *mut PyObject,
    arguments: *mut PyObject,
) -> *mut PyObject {
    let Some(before) = BEFORE[AT].get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: the built-in's own function is called as CPython would.
    let started = unsafe { (before.function)(module, arguments) };
    (before.handler)();
    started
}

unsafe extern "C" fn start_with_keywords<const AT: usize>(
    module: *mut PyObject,
    arguments: *mut PyObject,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let Some(before) = BEFORE[AT].get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as above; the definition says that the function takes keywords.
    let started = unsafe {
        let function = std::mem::transmute::<Function, WithKeywords>(before.function);
        function(module, arguments, keywords)
    };
    (before.handler)();
    started
}
