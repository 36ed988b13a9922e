//! The deaths of code objects and types, by which what is known of them is forgotten.
//!
//! Both are known by their addresses. The agent puts functions of its own before `tp_dealloc` of the
//! code type and of `type`; metaclasses reach the latter through their base. No reference is kept, so
//! everything dies when it would. The cost is a look-up at each death of a code object or a class.

use std::sync::OnceLock;

use crate::Agent;
use crate::api::{Api, PyObject};
use crate::layout::fixed;
use crate::patches::raw_calloc::under_main_gil;

type Dealloc = unsafe extern "C" fn(*mut PyObject);

static CODE_DEALLOC: OnceLock<Dealloc> = OnceLock::new();
static TYPE_DEALLOC: OnceLock<Dealloc> = OnceLock::new();

/// Begins to notice deaths.
///
/// # Safety
/// The GIL is held.
pub unsafe fn watch(api: &Api) {
    // SAFETY: both are types that live for ever, whose `tp_dealloc` is set.
    unsafe {
        replace(api.PyCode_Type, &CODE_DEALLOC, code_dealloc);
        replace(api.PyType_Type, &TYPE_DEALLOC, type_dealloc);
    }
}

/// # Safety
/// The GIL is held; `type_object` is a type with a `tp_dealloc`.
unsafe fn replace(type_object: *mut PyObject, before: &OnceLock<Dealloc>, ours: Dealloc) {
    // SAFETY: the slot is a word of a type object, which is writable: types change slots themselves.
    // Another interpreter's thread reads either value, and both are right.
    unsafe {
        let slot = type_object.byte_add(fixed::TYPE_DEALLOC).cast::<Dealloc>();
        before.get_or_init(|| slot.read());
        slot.write_volatile(ours);
    }
}

unsafe extern "C" fn code_dealloc(object: *mut PyObject) {
    if under_main_gil()
        && let Some(agent) = Agent::current()
    {
        // SAFETY: the agent belongs to the holder of the GIL, and this calls nothing of Python.
        unsafe { (*agent).tracker.code_died(object as usize) };
    }
    if let Some(dealloc) = CODE_DEALLOC.get() {
        // SAFETY: what the interpreter would have called.
        unsafe { dealloc(object) };
    }
}

unsafe extern "C" fn type_dealloc(object: *mut PyObject) {
    if under_main_gil()
        && let Some(agent) = Agent::current()
    {
        // SAFETY: as above.
        unsafe { (*agent).tracker.type_died(object as usize) };
    }
    if let Some(dealloc) = TYPE_DEALLOC.get() {
        // SAFETY: what the interpreter would have called.
        unsafe { dealloc(object) };
    }
}
