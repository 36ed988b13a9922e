//! What Python calls, besides start and stop.
//!
//! Order: [`nthbyte_pypy_prepare`], then `_vmprof.enable` with the descriptor that it gave, then
//! [`nthbyte_pypy_types`], then the session; after the session `_vmprof.disable`, then
//! [`nthbyte_pypy_finish`].

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

use nthbyte_session::copy_text;
use nthbyte_session::process::CachedProbe;

use super::engine::Engine;
use super::handler;
use super::library::Library;
use super::patch::Redirect;
use super::running;
use super::totals;
use super::types::{Shown, Types};
use super::vmprof::{self, Vmprof};

/// What Python says in the configuration under `"pypy"`.
#[derive(Debug)]
pub struct Settings {
    /// Has Python allocate.
    pub allocate: unsafe extern "C" fn(c_int, usize),
    /// Size of the nursery, if PyPy tells.
    pub nursery_size: Option<usize>,
    /// Remarks for the profile's reader.
    pub notes: Vec<String>,
}

impl Settings {
    /// Reads the settings.
    #[must_use]
    pub fn read(value: &serde_json::Value) -> Self {
        let nursery = value.get("nursery").and_then(serde_json::Value::as_u64);
        let notes = value.get("notes").and_then(serde_json::Value::as_array);
        let text = |note: &serde_json::Value| note.as_str().map(str::to_owned);
        Self {
            allocate,
            nursery_size: nursery.and_then(|size| usize::try_from(size).ok()),
            notes: notes
                .map(|notes| notes.iter().filter_map(text).collect())
                .unwrap_or_default(),
        }
    }
}

/// Has Python call its `_allocate(kind, size)`.
///
/// PyPy's interface for embedding is used, not a callback: to make a callback, PyPy sets up threads, and
/// from then on every loop stops now and then to let others run. A tight loop takes a quarter longer then.
unsafe extern "C" fn allocate(kind: c_int, size: usize) {
    type Execute = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: the name is a terminated string.
    let execute = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pypy_execute_source".as_ptr()) };
    let source = CString::new(format!(
        "from nthbyte import _pypy\n_pypy._allocate({kind}, {size})\n"
    ));
    if let Ok(source) = source
        && !execute.is_null()
    {
        // SAFETY: the function has this type since PyPy 2.x; it takes the interpreter's lock itself.
        unsafe { std::mem::transmute::<*mut c_void, Execute>(execute)(source.as_ptr()) };
    }
}

/// What is in place between prepare and finish.
#[derive(Debug, Default)]
struct Prepared {
    redirects: Vec<Redirect>,
    signal: Option<Signal>,
}

/// What SIGPROF did before.
#[derive(Debug)]
struct Signal(usize, c_int);

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// The type names that Python has handed over, between sessions: all sessions of a process use them.
static TYPES: Mutex<Option<Types>> = Mutex::new(None);

/// Takes the type names for a new session.
pub fn take_types() -> Types {
    TYPES
        .lock()
        .ok()
        .and_then(|mut types| types.take())
        .unwrap_or_default()
}

/// Gives them back.
pub fn keep_types(types: Types) {
    if let Ok(mut place) = TYPES.lock() {
        *place = Some(types);
    }
}

fn prepare() -> Result<Prepared, String> {
    let library = Library::of_this_process().ok_or("this interpreter is not PyPy")?;
    // SAFETY: zero is a valid value of the struct, which the call fills in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the current action only.
    unsafe { libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut action) };
    if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN {
        return Err("another profiler is using SIGPROF; stop it first".to_owned());
    }
    Vmprof::prepare()?;
    let mut prepared = Prepared {
        redirects: Vec::new(),
        signal: Some(Signal(action.sa_sigaction, action.sa_flags)),
    };
    for (name, function) in [
        (c"write", handler::write_hook as *const () as usize),
        (c"lseek", handler::lseek_hook as *const () as usize),
        (c"lseek64", handler::lseek_hook as *const () as usize),
        (c"mmap", handler::mmap_hook as *const () as usize),
        (c"mmap64", handler::mmap_hook as *const () as usize),
    ] {
        let slots = library.import_slots(name);
        // SAFETY: the slots are the library's imports of `name`, and the hook is called like it.
        let redirects = unsafe { Redirect::prepare(&slots, function) }?;
        prepared.redirects.extend(redirects);
    }
    for redirect in &prepared.redirects {
        redirect.turn(true);
    }
    Ok(prepared)
}

/// Gets ready for `_vmprof.enable`: a descriptor for it to write to, or -1 and a line in `message`.
///
/// # Safety
/// `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_prepare(message: *mut c_char, length: usize) -> c_int {
    let Ok(mut place) = PREPARED.lock() else {
        return -1;
    };
    let outcome = match &*place {
        Some(_) => Err("a session is on already; stop it first".to_owned()),
        None => prepare(),
    };
    match outcome {
        Ok(prepared) => {
            *place = Some(prepared);
            handler::DESCRIPTOR
        }
        Err(why) => {
            // SAFETY: passed on to the caller.
            unsafe { copy_text(&why, message, length) };
            -1
        }
    }
}

/// Hands over the names of types: the text of `gc.get_typeids_z()`, uncompressed, and the numbers of
/// `gc.get_typeids_list()`.
///
/// # Safety
/// `text` has `length` bytes and `numbers` has `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_types(
    text: *const c_char,
    length: usize,
    numbers: *const u32,
    count: usize,
) {
    // SAFETY: the caller's promise.
    let (text, numbers) = unsafe {
        (
            std::slice::from_raw_parts(text.cast::<u8>(), length),
            std::slice::from_raw_parts(numbers, count),
        )
    };
    keep_types(Types::new(text.to_vec(), numbers.to_vec()));
}

/// Shows `count` instances whose classes are known, so that the agent finds its way from an instance to
/// its class: addresses of instances and classes by turns, and the classes' qualified names, each ended
/// by a zero.
///
/// # Safety
/// `addresses` has `2 * count` numbers, and `names` has `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_classes(
    addresses: *const usize,
    count: usize,
    names: *const c_char,
) {
    // SAFETY: the caller's promise.
    let addresses = unsafe { std::slice::from_raw_parts(addresses, 2 * count) };
    let mut at = names;
    let shown = addresses
        .chunks_exact(2)
        .map(|pair| {
            // SAFETY: the caller's promise: there is a text for each pair.
            let name = unsafe { CStr::from_ptr(at) };
            at = at.wrapping_add(name.to_bytes().len() + 1);
            Shown {
                instance: pair[0],
                class: pair[1],
                qualified_name: name.to_bytes().into(),
            }
        })
        .collect();
    if let Ok(mut place) = TYPES.lock()
        && let Some(types) = place.as_mut()
    {
        types.show(shown);
    }
}

/// Tells PyPy's memory totals, in bytes: old objects in arenas, objects that lie by themselves, and the
/// arenas. To be called at several moments, so that the agent finds where they are kept.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_totals(in_arenas: usize, alone: usize, arenas: usize) {
    if let Some(library) = Library::of_this_process()
        && let Ok(collector) = running::collector(&library)
    {
        let told = totals::Told {
            in_arenas,
            alone,
            arenas,
        };
        let probe = CachedProbe::new();
        totals::observe(collector.gc, &library.data, told, |at| probe.word(at));
    }
}

/// Names a thread of the program.
///
/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_thread(os_id: u64, name: *const c_char) {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    if let Ok(mut names) = THREAD_NAMES.lock() {
        names.push((os_id, name));
    }
}

static THREAD_NAMES: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());

/// The names of threads that Python has told.
pub fn take_thread_names() -> Vec<(u64, String)> {
    THREAD_NAMES
        .lock()
        .map(|mut names| std::mem::take(&mut *names))
        .unwrap_or_default()
}

/// In the child of a fork: gives a new descriptor, with which `_vmprof` is to be disabled and enabled
/// again; then [`nthbyte_pypy_attach`]. -1: go on without stacks.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_forked() -> c_int {
    if Engine::after_fork() {
        handler::DESCRIPTOR
    } else {
        -1
    }
}

/// Takes over from `_vmprof`, which has just been enabled again.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_attach() {
    // Without its handler, samples have no stacks from now on.
    let _ = vmprof::take_over();
}

/// Whether `_vmprof` is to be disabled after the session: not if the program has done so, even if it has
/// enabled it again for itself.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_has_vmprof() -> c_int {
    c_int::from(!vmprof::is_taken_away())
}

/// Undoes [`nthbyte_pypy_prepare`], after `_vmprof.disable`.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_finish() {
    let Ok(mut place) = PREPARED.lock() else {
        return;
    };
    let Some(prepared) = place.take() else { return };
    for redirect in prepared.redirects.iter().rev() {
        redirect.turn(false);
    }
    if let Some(Signal(handler, flags)) = prepared.signal
        && !vmprof::is_taken_away()
    {
        // SAFETY: puts back the action that `prepare` found: the default, or to ignore the signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (handler, flags);
            libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut());
        }
    }
}
