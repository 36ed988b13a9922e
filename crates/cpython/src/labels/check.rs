//! Finds where a thread's state has its context, and compares walks with the interpreter's answers.
//!
//! `nthbyte._labels` calls these functions at the first label of a process, inside of contexts of its own: with no variable, with few and with many.
//! Samples read labels only if all agree.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::hamt::{Direct, Map, folded};
use super::objects;
use super::reader::{LabelReader, publish};
use crate::api::{FREE_THREADED, Gil, HEADER, PyObject};

/// The part of the thread's state that is searched, in bytes: less than its size in any version.
const SEARCHED: usize = 320;
/// `PyContextVar.var_hash`: behind the name and the default, and a cached value of three words where there is a GIL.
const VARIABLE_HASH: usize = HEADER + if FREE_THREADED { 16 } else { 40 };

/// The offset of the context in a thread's state; 0 before it was found, and [`NONE`] if it was not.
static CONTEXT: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = usize::MAX;

/// Looks for the current context in the thread's state. Returns whether it is there once, and where it was before.
pub fn locate(gil: &Gil, context: usize) -> bool {
    let state = gil.thread_state() as usize;
    let here = |offset: &usize| {
        // SAFETY: the state is larger than the searched part, and the GIL is held, so it does not change.
        let word = unsafe { ((state + offset) as *const usize).read() };
        word == context
    };
    let mut places = (0..SEARCHED).step_by(8).filter(here);
    let found = match (places.next(), places.next()) {
        (Some(place), None) => place,
        _ => NONE,
    };
    let before = CONTEXT.load(Acquire);
    let agrees = found != NONE && (before == 0 || before == found);
    CONTEXT.store(if agrees { found } else { NONE }, Release);
    agrees
}

/// Whether a walk finds this value of the context variable in the current context; 0 if there is none.
pub fn agree(gil: &Gil, expected: usize) -> bool {
    let (context, Some((variable, _))) = (CONTEXT.load(Acquire), objects::variable_and_type())
    else {
        return false;
    };
    // SAFETY: the variable is never freed.
    let Some(hash) = (unsafe { gil.hash(variable as *mut PyObject) }) else {
        return false;
    };
    if context == 0 || context == NONE {
        return false;
    }
    // SAFETY: the variable is larger than that; the thread's own state, of a layout that is as known: its context was found in it.
    unsafe {
        if ((variable + VARIABLE_HASH) as *const i64).read() != hash {
            return false;
        }
        let context = ((gil.thread_state() as usize + context) as *const usize).read();
        if context == 0 {
            return expected == 0;
        }
        let found = Map::new().find(&Direct::new(), context, variable, folded(hash));
        found.unwrap_or(0) == expected
    }
}

/// Lets samples read labels if all walks have agreed. If they have not, this profile and later ones say so.
pub fn read(gil: &Gil, agrees: bool) {
    let context = CONTEXT.load(Acquire);
    if let Some((variable, entered)) = objects::variable_and_type()
        // SAFETY: as above.
        && let Some(hash) = unsafe { gil.hash(variable as *mut PyObject) }
        && agrees
        && context != 0
        && context != NONE
    {
        publish(LabelReader {
            context,
            map: Map::new(),
            variable,
            hash: folded(hash),
            entered,
        });
        return;
    }
    ARE_OFF.store(true, Release);
    if let Some(mut recording) = nthbyte_session::record_now() {
        recording.note(OFF);
    }
}

/// The note of a profile in a process without labels that has asked for some.
pub fn note() -> Option<&'static str> {
    ARE_OFF.load(Acquire).then_some(OFF)
}

static ARE_OFF: AtomicBool = AtomicBool::new(false);
const OFF: &str = "labels are off: this interpreter does not keep its contexts as its release does";
