//! Compares the offsets that only snapshots read with what public functions say, before the first one.
//!
//! What a walk reads besides is in the layout, which was verified before the agent changed anything.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::functions::WalkFunctions;
use super::types::{BASE, MEMBERS, NEXT, TRAVERSE, word};
use super::walk::MODULE_DICT;
use crate::api::{Gil, Object};
use crate::layout::Layout;

/// Numbers of slots (`Include/typeslots.h`).
const SLOT_BASE: i32 = 48;
const SLOT_NEXT: i32 = 63;
const SLOT_TRAVERSE: i32 = 71;
const SLOT_MEMBERS: i32 = 72;

/// Whether they agreed.
static AGREE: AtomicBool = AtomicBool::new(false);

/// Compares. Once is enough, and each time would leave a tuple in the collector's counts: CPython 3.11 makes `co_varnames` anew.
///
/// # Errors
/// One clause that says what does not agree.
pub fn check(gil: &Gil, layout: &Layout, functions: &WalkFunctions) -> Result<(), String> {
    if AGREE.load(Relaxed) {
        return Ok(());
    }
    // Nothing is imported: that would call what the program has put in place of `__import__`.
    // SAFETY: the interpreter's dictionary of modules.
    let modules = unsafe { gil.object(functions.modules as *mut _) };
    let loaded = modules.map(|modules| modules.values(["nthbyte", "sys"]));
    let Some([Some(own), Some(sys)]) = loaded else {
        return Err("sys.modules does not have nthbyte or sys any more".to_owned());
    };
    let agrees = slots(gil, functions)
        && names(*own, layout) == Some(true)
        && module(*sys, functions) == Some(true);
    AGREE.store(agrees, Relaxed);
    match agrees {
        true => Ok(()),
        false => Err("objects are not laid out as in the release".to_owned()),
    }
}

/// The fields of types that know most of what a walk asks.
fn slots(gil: &Gil, functions: &WalkFunctions) -> bool {
    let api = gil.api();
    let types = [
        functions.function_type,
        functions.frame_type,
        functions.module_type,
        functions.set_types[0],
        functions.generator_types[1],
        functions.sequence_iterators[0],
    ];
    types.into_iter().all(|class| {
        let fields = [
            (TRAVERSE, SLOT_TRAVERSE),
            (NEXT, SLOT_NEXT),
            (MEMBERS, SLOT_MEMBERS),
            (BASE, SLOT_BASE),
        ];
        fields.into_iter().all(|(at, slot)| {
            // SAFETY: a static type; the function reads one of its slots.
            unsafe { word(class, at) == (api.PyType_GetSlot)(class as *mut _, slot) as usize }
        })
    })
}

/// The variables of a function, and where the items of a tuple lie.
fn names(module: Object<'_>, layout: &Layout) -> Option<bool> {
    let function = module.attribute(c"start")?;
    let code = function.attribute(c"__code__")?;
    let expected = code.attribute(c"co_varnames")?;
    let first = expected.element(0)?;
    let items = |tuple: usize| layout.references.tuple_items + tuple;
    // SAFETY: a code object, and the tuple that it has there if the layout is right. Both are aligned words of live objects.
    unsafe {
        let all = word(code.address(), layout.references.code_locals);
        let is_tuple = all != 0 && word(all, 8) == word(expected.address(), 8);
        let is_same = is_tuple && word(items(all), 0) == Object::address(*first);
        Some(
            is_same
                && word(items(expected.address()), 0) == first.address()
                && word(function.address(), super::links::FUNCTION_CODE) == code.address(),
        )
    }
}

/// The dictionary of a module.
fn module(module: Object<'_>, functions: &WalkFunctions) -> Option<bool> {
    let dict = module.attribute(c"__dict__")?;
    // SAFETY: a live module.
    unsafe {
        Some(
            word(module.address(), 8) == functions.module_type
                && word(module.address(), MODULE_DICT) == dict.address(),
        )
    }
}
