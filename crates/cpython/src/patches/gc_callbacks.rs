//! Collections of the cycle collector, through `gc.callbacks`.
//!
//! The callback is a function in C. It asks Python for what is in the dictionary that it is given
//! before it touches the tracker: the asking may allocate, and so lead back to the tracker.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use nthbyte_profile::event::Nanos;

use crate::Agent;
use crate::api::{Api, METH_VARARGS, MethodDef, Owned, PyObject};

/// The name that the callback has in `gc.callbacks`.
const NAME: &CStr = c"nthbyte";

/// What is remembered from the start of a collection to its end.
#[derive(Default)]
pub struct Collections {
    /// The function in `gc.callbacks`, while it is there.
    callback: Option<*mut PyObject>,
    started: Option<(Nanos, u64)>,
}

impl Collections {
    /// Puts the callback into `gc.callbacks`, first.
    ///
    /// # Errors
    /// `gc` has no list of callbacks.
    ///
    /// # Safety
    /// The GIL is held, in Python code.
    pub unsafe fn watch(&mut self, api: &Api) -> Result<(), &'static str> {
        if self.callback.is_some() {
            return Ok(());
        }
        let method = Box::leak(Box::new(MethodDef {
            name: NAME.as_ptr(),
            function: Some(on_collection),
            flags: METH_VARARGS,
            doc: std::ptr::null(),
        }));
        // SAFETY: by the contract; the method definition lives for ever.
        unsafe {
            let callbacks = callbacks(api).ok_or("gc has no callbacks")?;
            let function =
                Owned::take(api, (api.PyCFunction_NewEx)(method, null_mut(), null_mut()))
                    .ok_or("cannot make a function")?;
            if (api.PyList_Append)(callbacks.get(), function.get()) != 0 {
                (api.PyErr_Clear)();
                return Err("cannot add to gc.callbacks");
            }
            // The list holds the reference.
            self.callback = Some(function.get());
        }
        Ok(())
    }

    /// Takes the callback out again.
    ///
    /// # Safety
    /// The GIL is held, in Python code.
    pub unsafe fn unwatch(&mut self, api: &Api) {
        self.started = None;
        let Some(function) = self.callback.take() else {
            return;
        };
        // SAFETY: by the contract; if the program took the function out of the list, it is only
        // compared with what is there.
        unsafe {
            let Some(callbacks) = callbacks(api) else {
                return;
            };
            let at = (api.PySequence_Index)(callbacks.get(), function);
            if at >= 0 {
                (api.PySequence_DelItem)(callbacks.get(), at);
            }
            if !(api.PyErr_Occurred)().is_null() {
                (api.PyErr_Clear)();
            }
        }
    }

    /// Forgets a collection that has begun; its time is of another session.
    pub fn reset(&mut self) {
        self.started = None;
    }
}

/// # Safety
/// The GIL is held, in Python code.
unsafe fn callbacks(api: &Api) -> Option<Owned<'_>> {
    // SAFETY: by the contract.
    unsafe {
        api.import(c"gc")
            .and_then(|gc| api.attribute(gc.get(), c"callbacks"))
    }
}

/// `callback(phase, info)`.
unsafe extern "C" fn on_collection(_module: *mut PyObject, args: *mut PyObject) -> *mut PyObject {
    let Some(agent) = Agent::current() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held; `agent` lives for ever, and is not borrowed while
    // Python runs.
    unsafe {
        let api = (*agent).api;
        let phase = (api.PyTuple_GetItem)(args, 0);
        let info = (api.PyTuple_GetItem)(args, 1);
        if !phase.is_null() && !info.is_null() {
            match api.text(phase).as_deref() {
                Some("start") => (*agent).collection_starts(),
                Some("stop") => {
                    let number = |name: *const c_char| {
                        let value = (api.PyDict_GetItemString)(info, name);
                        (!value.is_null()).then(|| (api.PyLong_AsLong)(value))
                    };
                    let generation = number(c"generation".as_ptr());
                    let collected = number(c"collected".as_ptr());
                    (*agent).collection_ends(
                        generation.and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
                        collected.and_then(|n| u64::try_from(n).ok()),
                    );
                }
                _ => {}
            }
        }
        if !(api.PyErr_Occurred)().is_null() {
            (api.PyErr_Clear)();
        }
        (api.Py_IncRef)(api._Py_NoneStruct);
        api._Py_NoneStruct
    }
}

impl Agent {
    fn collection_starts(&mut self) {
        let used = self.tracker.heap_used();
        self.collections.started = self.tracker.before_collection().map(|time| (time, used));
    }

    fn collection_ends(&mut self, generation: u8, freed_objects: Option<u64>) {
        let Some(now) = self.tracker.before_collection() else {
            return;
        };
        let Some((start, used_before)) = self.collections.started.take() else {
            return;
        };
        self.tracker
            .after_collection(start, now, generation, freed_objects, used_before);
    }
}
