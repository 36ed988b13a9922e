//! Dealloc hooks: `tp_dealloc` of the code type and of `type`.
//!
//! - What: our function replaces each one. It calls the agent with the object that is about to be freed, then the
//!   original function. Metaclasses inherit the function of `type`.
//! - Installed: with the heap, before the first session.
//! - Removed: never. The cost is one look-up for each code object or class that is freed.
//!
//! The agent identifies code objects and types by their addresses, and removes the addresses here. It holds no
//! reference, so it does not delay their free.

use std::sync::OnceLock;

use crate::api::{Api, Gil, PyObject};
use crate::layout::Layout;

type Dealloc = unsafe extern "C" fn(*mut PyObject);

/// Called with the address of an object that is about to be freed.
pub type DeallocHandler = fn(&mut Gil, usize);

struct Hook {
    api: &'static Api,
    before: Dealloc,
    handler: DeallocHandler,
}

static CODE: OnceLock<Hook> = OnceLock::new();
static TYPE: OnceLock<Hook> = OnceLock::new();

/// Installs the hooks. The handlers must not panic.
///
/// # Safety
/// The layout was verified.
pub unsafe fn install(gil: &Gil, layout: &Layout, code: DeallocHandler, class: DeallocHandler) {
    let api = gil.api();
    // SAFETY: both types are never freed, and their `tp_dealloc` is set.
    unsafe {
        replace(api, layout, api.PyCode_Type, &CODE, code, code_dealloc);
        replace(api, layout, api.PyType_Type, &TYPE, class, type_dealloc);
    }
}

/// # Safety
/// The GIL is held, and the layout was verified; `class` is a type with a `tp_dealloc`.
unsafe fn replace(
    api: &'static Api,
    layout: &Layout,
    class: *mut PyObject,
    hook: &OnceLock<Hook>,
    handler: DeallocHandler,
    ours: Dealloc,
) {
    // SAFETY: the slot is a word of a type object, which is writable: types change slots themselves.
    // Another interpreter's thread reads either value, and both are right.
    unsafe {
        let slot = class.byte_add(layout.type_dealloc).cast::<Dealloc>();
        hook.get_or_init(|| Hook {
            api,
            before: slot.read(),
            handler,
        });
        slot.write_volatile(ours);
    }
}

unsafe extern "C" fn code_dealloc(object: *mut PyObject) {
    // SAFETY: as CPython calls it.
    unsafe { dealloc(&CODE, object) };
}

unsafe extern "C" fn type_dealloc(object: *mut PyObject) {
    // SAFETY: as CPython calls it.
    unsafe { dealloc(&TYPE, object) };
}

/// # Safety
/// A GIL is held, and `object` has no reference left.
unsafe fn dealloc(hook: &OnceLock<Hook>, object: *mut PyObject) {
    let Some(hook) = hook.get() else { return };
    // SAFETY: by the contract. The token is dropped before the original function runs, which CPython would have called.
    unsafe {
        (hook.handler)(&mut Gil::assume(hook.api), object as usize);
        (hook.before)(object);
    }
}
