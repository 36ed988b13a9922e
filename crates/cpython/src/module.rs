//! This library as an extension module of CPython.
//!
//! `ctypes` would serve, but takes half a megabyte and 4 ms of every program that is profiled. The
//! module has `start(config)`, `stop()`, `prepare()` and `compile()`. What it needs of CPython is found by name, as everywhere.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;

use super::Agent;
use super::api::{
    Api, CompilerFlags, FILE_INPUT, IGNORE_COOKIE, METH_NOARGS, METH_O, METH_VARARGS, MethodDef,
    PyObject,
};
use nthbyte_session::Config;
use nthbyte_session::process::image;

/// `PyModuleDef` of `Include/moduleobject.h`.
#[repr(C)]
struct ModuleDef {
    /// `PyModuleDef_Base`: a reference count of 1, then words that CPython fills.
    base: [usize; 5],
    name: *const c_char,
    doc: *const c_char,
    size: isize,
    methods: *mut MethodDef,
    /// Ended by a slot 0: no slots, but initialisation in several phases.
    slots: *mut [usize; 2],
    unused: [usize; 3],
}

/// What `import` calls. Null, without an exception, if this is not a CPython that is served.
#[unsafe(no_mangle)]
extern "C" fn PyInit__native() -> *mut PyObject {
    let Ok(api) = Api::find() else {
        return null_mut();
    };
    let method = |name: &'static std::ffi::CStr, function, flags| MethodDef {
        name: name.as_ptr(),
        function: Some(function),
        flags,
        doc: std::ptr::null(),
    };
    let methods = Box::leak(Box::new([
        method(c"prepare", prepare, METH_NOARGS),
        method(c"compile", compile, METH_VARARGS),
        method(c"start", start, METH_O),
        method(c"stop", stop, METH_NOARGS),
        MethodDef {
            name: std::ptr::null(),
            function: None,
            flags: 0,
            doc: std::ptr::null(),
        },
    ]));
    let definition = Box::leak(Box::new(ModuleDef {
        base: [1, 0, 0, 0, 0],
        name: c"nthbyte._native".as_ptr(),
        doc: std::ptr::null(),
        size: 0,
        methods: methods.as_mut_ptr(),
        slots: Box::leak(Box::new([0; 2])),
        unused: [0; 3],
    }));
    // SAFETY: the definition has the layout of the stable ABI and lives for ever; CPython calls this with
    // the GIL held.
    unsafe { (api.PyModuleDef_Init)((&raw mut *definition).cast::<c_void>()) }
}

/// `prepare()`: puts the heap in place already, if that can be.
unsafe extern "C" fn prepare(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let Some(api) = api() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held.
    unsafe {
        // What is wrong will be said at the start of a session.
        let _ = super::prepare();
        answer(&api, None)
    }
}

/// `compile(source: bytes, name: str, is_file: bool) -> CodeType`, for sources without a zero byte: as the interpreter
/// compiles a script (where a comment may name the encoding) or the code after `-c` (which is UTF-8). The built-in
/// `compile` makes the hundred types of `ast` first: half a megabyte, and more time than everything else at the start.
unsafe extern "C" fn compile(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let Some(api) = api() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held and a live tuple, and what fails returns null and sets Python's
    // error. The source ends with a zero, as `bytes` do.
    unsafe {
        let argument = |at| (api.PyTuple_GetItem)(arguments, at);
        let [source, name, is_file] = [argument(0), argument(1), argument(2)];
        if source.is_null() || name.is_null() || is_file.is_null() {
            return null_mut();
        }
        let source = (api.PyBytes_AsString)(source);
        if source.is_null() {
            return null_mut();
        }
        let mut flags = CompilerFlags {
            flags: if (api.PyObject_IsTrue)(is_file) == 1 {
                0
            } else {
                IGNORE_COOKIE
            },
            feature_version: 0,
        };
        (api.Py_CompileStringObject)(source, name, FILE_INPUT, &raw mut flags, -1)
    }
}

/// `start(config: str) -> str | None`: what is wrong, in one line.
unsafe extern "C" fn start(_module: *mut PyObject, config: *mut PyObject) -> *mut PyObject {
    let Some(api) = api() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held and a live object.
    unsafe {
        let started = api
            .text(config)
            .ok_or_else(|| "bad configuration: not a str".to_owned())
            .and_then(|text| Config::parse(&text))
            .and_then(|config| super::start(&config));
        // What starting took is not needed again.
        image::release();
        answer(&api, started.err())
    }
}

/// `stop() -> str | None`: the [`Outcome`](nthbyte_session::Outcome) as JSON, if a session was running.
unsafe extern "C" fn stop(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let Some(api) = api() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with the GIL held.
    unsafe {
        let outcome = super::stop();
        answer(&api, outcome.map(|outcome| outcome.to_json()))
    }
}

/// That of the agent, if there is one: to look it up again would bring back what [`image::release`] let go.
fn api() -> Option<Api> {
    match Agent::current() {
        // SAFETY: the agent lives for ever, and this of it does not change.
        Some(agent) => Some(unsafe { (*agent).api }),
        None => Api::find().ok(),
    }
}

/// A text as a `str`, or `None`.
///
/// # Safety
/// The GIL is held.
unsafe fn answer(api: &Api, text: Option<String>) -> *mut PyObject {
    // SAFETY: by the contract; the text ends with a zero.
    unsafe {
        match text.map(CString::new) {
            Some(text) => (api.PyUnicode_FromString)(text.unwrap_or_default().as_ptr()),
            None => {
                (api.Py_IncRef)(api._Py_NoneStruct);
                api._Py_NoneStruct
            }
        }
    }
}
