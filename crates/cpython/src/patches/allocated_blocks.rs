//! `sys.getallocatedblocks()`: it counts the blocks of the allocator that the heap replaced.
//!
//! - What: the C function of the built-in; the Python object stays the same. Our function adds the heap's blocks to
//!   CPython's count, which includes the blocks of the fallbacks. Without the GIL, it takes off the free blocks that our lists hold,
//!   which count as in use. Programs compare two results to find leaks.
//! - Installed: with the heap, before the first session.
//! - Removed: never, because the heap stays.

use std::sync::OnceLock;

use super::definition;
use crate::api::{Api, FREE_THREADED, Function, Gil, METH_NOARGS, PyObject};
use crate::layout::Layout;

/// Returns what CPython's count leaves out: the heap's blocks in use, if this interpreter uses the heap. Must not panic.
pub type Counter = fn(&mut Gil) -> Option<isize>;

struct Before {
    api: &'static Api,
    function: Function,
    counter: Counter,
}

static BEFORE: OnceLock<Before> = OnceLock::new();

/// Makes the built-in count the heap's blocks too. Does nothing if another library has already replaced the built-in.
///
/// # Safety
/// The layout was verified.
pub unsafe fn install(gil: &Gil, layout: &Layout, counter: Counter) {
    let Some(built_in) = gil
        .import(c"sys")
        .and_then(|sys| sys.attribute(c"getallocatedblocks"))
    else {
        return;
    };
    // SAFETY: by the contract.
    let Some(found) = (unsafe { definition(&built_in, layout) }) else {
        return;
    };
    if found.flags == METH_NOARGS {
        BEFORE.get_or_init(|| Before {
            api: gil.api(),
            function: found.function,
            counter,
        });
        // SAFETY: ours has the type that the flags say.
        unsafe { found.replace(count_all) };
    }
}

unsafe extern "C" fn count_all(module: *mut PyObject, none: *mut PyObject) -> *mut PyObject {
    let Some(before) = BEFORE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: CPython calls this with a GIL held; the built-in's own function is called as CPython would.
    unsafe {
        let mut gil = Gil::assume(before.api);
        // Without the GIL, before the result is made: a list may be filled for it.
        let held = FREE_THREADED.then(|| (before.counter)(&mut gil));
        let counted = (before.function)(module, none);
        let Some(others) = gil.object(counted).and_then(|counted| counted.integer()) else {
            return counted;
        };
        if others <= 0 {
            // With PYTHONMALLOC=malloc, CPython does not count blocks.
            return counted;
        }
        let Some(ours) = held.unwrap_or_else(|| (before.counter)(&mut gil)) else {
            return counted;
        };
        drop(gil.owned(counted));
        gil.integer((others as isize + ours).max(0))
            .map_or(std::ptr::null_mut(), |sum| sum.give())
    }
}
