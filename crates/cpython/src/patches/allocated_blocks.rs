//! `sys.getallocatedblocks()`, which counts the blocks of the allocator that the heap replaced.
//!
//! Programs compare two of its answers to find leaks. A function of the agent's own is put behind the
//! built-in, which stays the object that it was, and adds the heap's blocks. What the fallbacks serve
//! CPython counts itself, whatever its size.

use std::sync::OnceLock;

use nthbyte_heap::Heap;

use crate::Agent;
use crate::api::{Api, Function, METH_NOARGS, MethodDef, PyObject};
use crate::layout::fixed;
use crate::patches::raw_calloc::under_main_gil;

static BEFORE: OnceLock<Function> = OnceLock::new();

/// From now on, the built-in counts the heap's blocks too. Does nothing if it is not as CPython made it.
///
/// # Safety
/// The GIL is held, in Python code.
pub unsafe fn count(api: &Api) {
    // SAFETY: by the contract. What CPython says is a built-in function has a definition at this offset,
    // which is a static variable, and writable; that it is the right one shows in the function.
    unsafe {
        let Some(built_in) = api
            .import(c"sys")
            .and_then(|sys| api.attribute(sys.get(), c"getallocatedblocks"))
        else {
            return;
        };
        let Some(function) = (api.PyCFunction_GetFunction)(built_in.get()) else {
            (api.PyErr_Clear)();
            return;
        };
        let definition = built_in
            .get()
            .byte_add(fixed::FUNCTION_DEFINITION)
            .cast::<*mut MethodDef>()
            .read();
        let defined = (*definition).function.map(|function| function as usize);
        if defined == Some(function as usize) && (*definition).flags == METH_NOARGS {
            BEFORE.get_or_init(|| function);
            (&raw mut (*definition).function).write_volatile(Some(count_all));
        }
    }
}

unsafe extern "C" fn count_all(module: *mut PyObject, none: *mut PyObject) -> *mut PyObject {
    let Some(before) = BEFORE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: the built-in's own function, called as CPython would; then the agent and the heap are
    // those of the GIL that is held, and are not borrowed while Python runs.
    unsafe {
        let counted = before(module, none);
        if counted.is_null() || !under_main_gil() {
            return counted;
        }
        let Some(agent) = Agent::current() else {
            return counted;
        };
        let api = (*agent).api;
        let others = (api.PyLong_AsLong)(counted);
        if others <= 0 {
            // PYTHONMALLOC=malloc: nothing is counted.
            return counted;
        }
        let ours = Heap::blocks_in_use((*agent).installed.heap().cast());
        (api.Py_DecRef)(counted);
        (api.PyLong_FromSsize_t)(others as isize + ours.cast_signed())
    }
}
