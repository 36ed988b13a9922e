//! This library as an extension module of CPython.
//!
//! `ctypes` would also work, but costs each profiled program half a megabyte and 4 ms. The module has `start(config)`,
//! `stop()`, `prepare()`, `load_native()`, `compile()`, `execute()`, `label()` and their like. It looks up CPython's functions by name, like the rest of the library.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::null_mut;

use nthbyte_host::process::host_images::HostImages;
use nthbyte_host::process::image;
use nthbyte_profile::holders::Reason;
use nthbyte_session::Config;
use nthbyte_session::native;

use crate::agent;
use crate::api::{
    CompilerFlags, FREE_THREADED, FastKeywordFunction, Function, Gil, HEADER, IGNORE_COOKIE,
    METH_FASTCALL, METH_KEYWORDS, METH_NOARGS, METH_O, METH_VARARGS, MethodDef, PyObject,
};
use crate::labels;
use crate::recursion::without_calls_below;

/// `PyModuleDef` of `Include/moduleobject.h`.
#[repr(C)]
struct ModuleDef {
    /// `PyModuleDef_Base`: an object with a reference count, then three words that CPython sets.
    base: [usize; HEADER / 8 + 3],
    name: *const c_char,
    doc: *const c_char,
    size: isize,
    methods: *mut MethodDef,
    /// A slot 0 ends the list, whose presence selects initialisation in several phases.
    slots: *mut [usize; 2],
    unused: [usize; 3],
}

/// The words of an object's header in a static definition: one reference, or, without the GIL, one that is never given back.
const STATIC_HEADER: [usize; 2] = if FREE_THREADED {
    [0, (u32::MAX as usize) << 32]
} else {
    [1, 0]
};
/// `Py_mod_gil` and `Py_MOD_GIL_NOT_USED`: without this slot, the import would switch the GIL on.
const NEEDS_NO_GIL: [usize; 2] = [4, 1];

/// `import` calls this function. It returns null without an exception if this CPython is not supported.
#[cfg_attr(not(feature = "free-threaded"), unsafe(no_mangle))]
#[allow(non_snake_case)]
pub extern "C" fn PyInit__native() -> *mut PyObject {
    let Some(gil) = gil() else {
        return null_mut();
    };
    #[cfg(not(feature = "free-threaded"))]
    if crate::layout::is_free_threaded(gil.api()) {
        return nthbyte_freethreaded::PyInit__native().cast();
    }
    let method = |name: &'static std::ffi::CStr, function, flags| MethodDef {
        name: name.as_ptr(),
        function: Some(function),
        flags,
        doc: std::ptr::null(),
    };
    let methods = Box::leak(Box::new([
        method(c"prepare", prepare, METH_NOARGS),
        method(c"load_native", load_native, METH_O),
        method(c"page_tables_problem", page_tables_problem, METH_NOARGS),
        method(c"claim", claim, METH_O),
        method(c"settle", settle, METH_O),
        method(c"free_name", free_name, METH_O),
        method(c"say", say, METH_O),
        method(c"compile", compile, METH_VARARGS),
        method(c"execute", execute, METH_VARARGS),
        method(c"start", start, METH_O),
        method(c"stop", stop, METH_NOARGS),
        method(c"mark", mark, METH_NOARGS),
        method(c"flush", flush, METH_NOARGS),
        method(c"snapshot", snapshot, METH_O),
        method(c"snapshot_at_signal", snapshot_at_signal, METH_NOARGS),
        method(c"snapshot_nanos", snapshot_nanos, METH_NOARGS),
        method(c"forked", forked, METH_NOARGS),
        method(c"has_profile", has_profile, METH_NOARGS),
        method(c"clock_start", clock_start, METH_NOARGS),
        method(c"begin_labels", begin_labels, METH_NOARGS),
        method(c"locate_context", locate_context, METH_O),
        method(c"sees_label", sees_label, METH_O),
        method(c"read_labels", read_labels, METH_O),
        method(c"label_process", label_process, METH_O),
        method(
            c"label",
            // SAFETY: the flags say which function it is.
            unsafe { std::mem::transmute::<FastKeywordFunction, Function>(labels::label) },
            METH_FASTCALL | METH_KEYWORDS,
        ),
        MethodDef {
            name: std::ptr::null(),
            function: None,
            flags: 0,
            doc: std::ptr::null(),
        },
    ]));
    let mut base = [0; HEADER / 8 + 3];
    base[..2].copy_from_slice(&STATIC_HEADER);
    let slots: &[[usize; 2]] = if FREE_THREADED {
        &[NEEDS_NO_GIL, [0; 2]]
    } else {
        &[[0; 2]]
    };
    let definition = Box::leak(Box::new(ModuleDef {
        base,
        name: c"nthbyte._native".as_ptr(),
        doc: std::ptr::null(),
        size: 0,
        methods: methods.as_mut_ptr(),
        slots: slots.to_vec().leak().as_mut_ptr(),
        unused: [0; 3],
    }));
    // SAFETY: the definition has the layout of the stable ABI and is never freed; CPython calls this with the GIL held.
    unsafe { gil.module((&raw mut *definition).cast::<c_void>()) }
}

/// `prepare()`: installs the heap early, if possible. `nthbyte run` calls this, as the first step. So it is the time to
/// release what the interpreter's start used: then what nthbyte itself needs does not come on top.
unsafe extern "C" fn prepare(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        HostImages::find().iter().for_each(HostImages::release);
        // The start of a session reports the error.
        let _ = agent::prepare(gil);
        None
    })
}

/// `load_native(path: str) -> str | None`: makes native memory available. Returns the reason if that is not possible.
unsafe extern "C" fn load_native(_module: *mut PyObject, path: *mut PyObject) -> *mut PyObject {
    answer(Some("nthbyte failed; please report it"), |gil| {
        // SAFETY: CPython calls this with a live object.
        let path = unsafe { gil.object(path) }
            .and_then(|path| path.text())
            .and_then(|path| CString::new(path).ok());
        match path {
            Some(path) => native::load(&path).err(),
            None => Some("the name of its library is not UTF-8".to_owned()),
        }
    })
}

/// `page_tables_problem() -> str | None`: see [`nthbyte_session::composition::page_tables_problem`].
unsafe extern "C" fn page_tables_problem(
    _module: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    answer(None, |_| {
        nthbyte_session::composition::page_tables_problem()
    })
}

/// `claim(request: str) -> str`: the profile's path after a `+`, or the error in one line after a `-`: see
/// [`nthbyte_session::claim`].
unsafe extern "C" fn claim(_module: *mut PyObject, request: *mut PyObject) -> *mut PyObject {
    answer(Some("-nthbyte failed; please report it"), |gil| {
        // SAFETY: CPython calls this with a live object.
        let text = unsafe { gil.object(request) }.and_then(|request| request.text());
        let claimed = nthbyte_session::claim(&text.unwrap_or_default());
        Some(claimed.map_or_else(|why| format!("-{why}"), |path| format!("+{path}")))
    })
}

/// `settle(has_begun: bool)`: ends the claim.
unsafe extern "C" fn settle(_module: *mut PyObject, has_begun: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        // SAFETY: CPython calls this with a live object.
        let has_begun = unsafe { gil.object(has_begun) };
        nthbyte_session::settle(has_begun.is_some_and(|begun| begun.is_true()));
        None
    })
}

/// `free_name(path: str) -> str`: the name that a claim would take which replaces nothing.
unsafe extern "C" fn free_name(_module: *mut PyObject, path: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        // SAFETY: CPython calls this with a live object.
        let path = unsafe { gil.object(path) }.and_then(|path| path.text())?;
        let free = nthbyte_profile::claim::free_name(Path::new(&path));
        Some(free.to_string_lossy().into_owned())
    })
}

/// `say(request: str) -> str`: the line at the end, and its like: see [`nthbyte_session::end_line::answer`].
unsafe extern "C" fn say(_module: *mut PyObject, request: *mut PyObject) -> *mut PyObject {
    answer(Some("nthbyte failed; please report it"), |gil| {
        // SAFETY: CPython calls this with a live object.
        let request = unsafe { gil.object(request) }.and_then(|request| request.text())?;
        Some(nthbyte_session::end_line::answer(&request))
    })
}

/// `compile(source: bytes, name: str, is_file: bool) -> CodeType`, for sources without a zero byte. It compiles as the
/// interpreter does for a script (a comment may name the encoding) or for the code after `-c` (UTF-8). The built-in
/// `compile` first creates the hundred types of `ast`: half a megabyte, and more time than all other steps of the
/// start.
unsafe extern "C" fn compile(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let Some(gil) = gil() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with a live tuple.
    let arguments = unsafe { gil.object(arguments) };
    let argument = |at| arguments.and_then(|arguments| arguments.element(at));
    let (Some(source), Some(name), Some(is_file)) = (argument(0), argument(1), argument(2)) else {
        return null_mut();
    };
    let Some(text) = source.bytes() else {
        return null_mut();
    };
    let mut flags = CompilerFlags {
        flags: if is_file.is_true() { 0 } else { IGNORE_COOKIE },
        feature_version: 0,
    };
    // SAFETY: `bytes` end with a zero and live as long as `source`; the name is live.
    unsafe { gil.compile(CStr::from_ptr(text), name.as_ptr(), &mut flags) }
}

/// `execute(code: CodeType, globals: dict)` or `execute(function, arguments: tuple)`: runs the program, as the interpreter
/// does without a frame below it.
unsafe extern "C" fn execute(_module: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let Some(gil) = gil() else {
        return null_mut();
    };
    // SAFETY: CPython calls this with a live tuple.
    let arguments = unsafe { gil.object(arguments) };
    let argument = |at| arguments.and_then(|arguments| arguments.element(at));
    let (Some(what), Some(with)) = (argument(0), argument(1)) else {
        return null_mut();
    };
    without_calls_below(&gil, || {
        // SAFETY: both are live; the caller, `_agent.py`, passes objects of these types.
        unsafe { gil.execute(what.as_ptr(), with.as_ptr()) }
    })
}

/// `start(config: str) -> str | None`: returns the error in one line.
unsafe extern "C" fn start(_module: *mut PyObject, config: *mut PyObject) -> *mut PyObject {
    answer(Some("nthbyte failed; please report it"), |gil| {
        // SAFETY: CPython calls this with a live object.
        let text = unsafe { gil.object(config) }.and_then(|config| config.text());
        let started = text
            .ok_or_else(|| "bad configuration: not a str".to_owned())
            .and_then(|text| Config::parse(&text))
            .and_then(|config| agent::start(gil, &config));
        // The start's code is not needed again.
        image::release();
        started.err()
    })
}

/// `stop() -> str | None`: the [`SessionOutcome`](nthbyte_session::SessionOutcome) as text, if a session was running.
unsafe extern "C" fn stop(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        agent::stop(gil).map(|outcome| outcome.to_text())
    })
}

/// `mark() -> str | None`: the [`Mark`](nthbyte_session::Mark) of this moment as text, if a session is running.
unsafe extern "C" fn mark(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| agent::mark(gil).map(|mark| mark.to_text()))
}

/// `flush() -> str | None`: a text if the file has everything that was recorded: see [`nthbyte_session::flush`].
unsafe extern "C" fn flush(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |_| nthbyte_session::flush().then(|| "yes".to_owned()))
}

/// `snapshot(whatever: bool) -> str | None`: takes a snapshot of who holds what. Returns why there is none.
unsafe extern "C" fn snapshot(_module: *mut PyObject, whatever: *mut PyObject) -> *mut PyObject {
    answer(Some("nthbyte failed; please report it"), |gil| {
        // SAFETY: CPython calls this with a live object.
        let whatever = unsafe { gil.object(whatever) }.is_some_and(|given| given.is_true());
        agent::snapshot(gil, Reason::Call, whatever).err()
    })
}

/// `snapshot_at_signal() -> str | None`: the same, because a signal has asked for it.
unsafe extern "C" fn snapshot_at_signal(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(Some("nthbyte failed; please report it"), |gil| {
        agent::snapshot(gil, Reason::Signal, false).err()
    })
}

/// `snapshot_nanos() -> str`: the CPU time of the processes that have taken snapshots, in nanoseconds.
unsafe extern "C" fn snapshot_nanos(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |_| {
        Some(nthbyte_session::snapshots::spent().0.to_string())
    })
}

/// `forked()`: called in the child of a fork, by `os.register_at_fork`.
unsafe extern "C" fn forked(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        agent::forked(gil);
        None
    })
}

/// `has_profile() -> str | None`: a text if this process has a profile. The child of a fork has none before its first
/// recording.
unsafe extern "C" fn has_profile(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |_| {
        nthbyte_session::has_profile().then(|| "yes".to_owned())
    })
}

/// `clock_start() -> str | None`: the reading of `CLOCK_MONOTONIC` in nanoseconds at which the times of the profile begin, as
/// digits.
unsafe extern "C" fn clock_start(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    answer(None, |_| {
        nthbyte_session::clock_start().map(|start| start.to_string())
    })
}

/// `begin_labels() -> ContextVar | None`: the variable of labels, made at the first call; `None` where labels are not possible.
unsafe extern "C" fn begin_labels(_module: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let Some(gil) = gil() else {
        return null_mut();
    };
    match labels::begin(&gil) {
        Some(variable) => {
            // SAFETY: the variable is never freed.
            unsafe { gil.increment(variable) };
            variable
        }
        None => gil.none().give(),
    }
}

/// `locate_context(context) -> str | None`: called inside of that context; a text if it is where it should be.
unsafe extern "C" fn locate_context(
    _module: *mut PyObject,
    context: *mut PyObject,
) -> *mut PyObject {
    answer(None, |gil| {
        labels::locate(gil, context as usize).then(|| "yes".to_owned())
    })
}

/// `sees_label(expected: object) -> str | None`: a text if a sample would see this value of the variable; `None` stands for no value.
unsafe extern "C" fn sees_label(_module: *mut PyObject, expected: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        let is_none = expected == gil.none().as_ptr();
        let expected = if is_none { 0 } else { expected as usize };
        labels::agree(gil, expected).then(|| "yes".to_owned())
    })
}

/// `read_labels(agrees: bool)`: lets samples read labels; if the checks do not agree, the profile gets a note.
unsafe extern "C" fn read_labels(_module: *mut PyObject, agrees: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        // SAFETY: CPython calls this with a live object.
        let agrees = unsafe { gil.object(agrees) }.is_some_and(|agrees| agrees.is_true());
        labels::read(gil, agrees);
        None
    })
}

/// `label_process(text: str)`: see [`nthbyte_session::labels::label_process`].
unsafe extern "C" fn label_process(_module: *mut PyObject, text: *mut PyObject) -> *mut PyObject {
    answer(None, |gil| {
        // SAFETY: CPython calls this with a live object.
        let text = unsafe { gil.object(text) }.and_then(|text| text.text())?;
        nthbyte_session::labels::label_process(&text);
        None
    })
}

/// The token for a function that CPython calls.
fn gil() -> Option<Gil> {
    // SAFETY: CPython calls the functions of a module with the GIL held, where Python code may run.
    unsafe { Gil::of_caller() }
}

/// Converts the result of `work` into a `str` or `None`. If `work` panics, the result is `failed`.
fn answer(failed: Option<&str>, work: impl FnOnce(&mut Gil) -> Option<String>) -> *mut PyObject {
    let Some(mut gil) = gil() else {
        return null_mut();
    };
    let text = catch_unwind(AssertUnwindSafe(|| work(&mut gil)))
        .unwrap_or_else(|_| failed.map(str::to_owned));
    match text.map(CString::new) {
        Some(text) => gil
            .text(&text.unwrap_or_default())
            .map_or(null_mut(), |text| text.give()),
        None => gil.none().give(),
    }
}
