//! The C functions that Python calls; their names begin with `nthbyte_pypy_`.
//!
//! Python calls them without the interpreter's lock. In a session with the collector hooked they come in this order:
//!
//! 1. `load_native`, if native memory is recorded; `prepare_vmprof`, and `_vmprof.enable` with the descriptor that it gives;
//! 2. in the first session of a process: `report_totals`, `set_types`, `set_probe_instances`, `report_totals`;
//! 3. `start`; and in the first session `report_totals` once more;
//! 4. in the child of a fork: `reopen_vmprof`, `_vmprof.enable` with the same descriptor, `attach_vmprof`;
//! 5. `name_thread` for each thread, `stop` and `release_text`;
//! 6. `_vmprof.disable` if `owns_vmprof` says so, and `release_vmprof`.
//!
//! In a session through `gc.hooks`: `start`, `minors_per_sample`, `report_minors` after each collection, `stop`, `release_text`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::BufReader;
use std::path::Path;
use std::ptr::null_mut;

use nthbyte_host::process::CachedProbe;
use nthbyte_session::{Config, copy_text, native};

use super::{preparation, python};
use crate::collector::{Engine, ReportedTotals, found_totals, observe_totals};
use crate::stacks::{DESCRIPTOR, Vmprof, take_over, ticks};
use crate::types::{ProbeInstance, Types};
use crate::{gc_hooks, labels};
use flate2::bufread::ZlibDecoder;
use nthbyte_rpython::binary::{self, Collector, MappedLibrary};

/// Whether the collector can be hooked on this processor. If not, all sessions use `gc.hooks`.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_can_hook() -> c_int {
    c_int::from(binary::CAN_HOOK)
}

/// Prepares for `_vmprof.enable`. Returns the descriptor to which `_vmprof` must write; or -1, with a
/// line in `message`.
///
/// # Safety
/// `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_prepare_vmprof(message: *mut c_char, length: usize) -> c_int {
    preparation::prepare().unwrap_or_else(|why| {
        // SAFETY: the caller's promise.
        unsafe { copy_text(&why, message, length) };
        -1
    })
}

/// Sets the names of types: the compressed text of `gc.get_typeids_z()`, and the numbers of `gc.get_typeids_list()`.
///
/// # Safety
/// `text` has `length` bytes and `numbers` has `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_set_types(
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
    let text = BufReader::new(ZlibDecoder::new(text));
    python::keep_types(Types::new(text, numbers));
}

/// Sets `count` instances whose classes are known. With them the agent finds how an instance refers to its class.
/// `addresses` are pairs of the addresses of an instance and its class. `names` are the classes' qualified names,
/// each followed by a zero byte. Call this after [`nthbyte_pypy_set_types`].
///
/// # Safety
/// `addresses` has `2 * count` numbers, and `names` has `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_set_probe_instances(
    addresses: *const usize,
    count: usize,
    names: *const c_char,
) {
    // SAFETY: the caller's promise.
    let addresses = unsafe { std::slice::from_raw_parts(addresses, 2 * count) };
    let mut at = names;
    let instances = addresses
        .chunks_exact(2)
        .map(|pair| {
            // SAFETY: the caller's promise: there is a text for each pair.
            let name = unsafe { CStr::from_ptr(at) };
            at = at.wrapping_add(name.to_bytes().len() + 1);
            ProbeInstance {
                instance: pair[0],
                class: pair[1],
                qualified_name: name.to_bytes().into(),
            }
        })
        .collect();
    python::keep_probe_instances(instances);
}

/// Reports PyPy's memory totals, in bytes: old objects in arenas, large objects, and the arenas. Call this at
/// several moments, between which the totals change: the agent then finds the places where the collector keeps
/// them. Returns 1 if they are found, or else 0.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_report_totals(
    in_arenas: usize,
    large: usize,
    arenas: usize,
) -> c_int {
    if let Some(library) = MappedLibrary::of_this_process()
        && let Ok(collector) = Collector::find(&library)
    {
        let reported = ReportedTotals {
            in_arenas,
            large,
            arenas,
        };
        let probe = CachedProbe::new();
        observe_totals(collector.gc, &library.data, reported, |at| probe.word(at));
    }
    c_int::from(found_totals().is_some())
}

/// Sets the name of a thread of the program, for the session that is about to stop.
///
/// # Safety
/// `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_name_thread(os_id: u64, name: *const c_char) {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    python::keep_thread_name(os_id, name.into_owned());
}

/// The number of a set of labels for [`nthbyte_pypy_set_labels`]: its keys and values, with `\x1f` between them. 0 if there are too
/// many.
///
/// # Safety
/// `text` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_define_labels(text: *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    std::panic::catch_unwind(|| labels::define(&text)).unwrap_or(0)
}

/// Sets the labels in force of the calling thread; 0 for none.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_set_labels(number: u32) {
    labels::set(number);
}

/// Labels the whole process: see [`nthbyte_session::labels::label_process`].
///
/// # Safety
/// `text` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_label_process(text: *const c_char) {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A panic leaves the labels as they were.
    let _ = std::panic::catch_unwind(|| nthbyte_session::labels::label_process(&text));
}

/// Makes native memory available, before [`nthbyte_pypy_prepare_vmprof`], which remembers the imports that this changes.
/// `path` is the library's. Returns 0, or 1 with the reason in `message`.
///
/// # Safety
/// `path` ends with a zero byte; `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_load_native(
    path: *const c_char,
    message: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match native::load(unsafe { CStr::from_ptr(path) }) {
        Ok(()) => 0,
        Err(why) => {
            // SAFETY: the caller's promise.
            unsafe { copy_text(&why, message, length) };
            1
        }
    }
}

/// Returns 1 with a line in `message` if the page tables cannot be read, or else 0: see
/// [`nthbyte_session::composition::page_tables_problem`].
///
/// # Safety
/// `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_page_tables_problem(
    message: *mut c_char,
    length: usize,
) -> c_int {
    let Some(problem) = nthbyte_session::composition::page_tables_problem() else {
        return 0;
    };
    // SAFETY: the caller's promise.
    unsafe { copy_text(&problem, message, length) };
    1
}

/// Claims the file of a profile: see [`nthbyte_session::claim`]. `answer` gets its path with the result 0, or the error in
/// one line with the result 1.
///
/// # Safety
/// `request` ends with a zero byte; `answer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_claim(
    request: *const c_char,
    answer: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let claimed = unsafe { CStr::from_ptr(request) }
        .to_str()
        .map_err(|error| format!("bad request: {error}"))
        .and_then(nthbyte_session::claim);
    // SAFETY: the caller's promise.
    unsafe { copy_text(claimed.as_ref().unwrap_or_else(|why| why), answer, length) };
    c_int::from(claimed.is_err())
}

/// Ends the claim. `has_begun`: whether the session has begun.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_settle(has_begun: c_int) {
    nthbyte_session::settle(has_begun != 0);
}

/// Writes the name into `answer` that a claim would take which replaces nothing.
///
/// # Safety
/// `path` ends with a zero byte; `answer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_free_name(
    path: *const c_char,
    answer: *mut c_char,
    length: usize,
) {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    let free = nthbyte_profile::claim::free_name(Path::new(&*path));
    // SAFETY: the caller's promise.
    unsafe { copy_text(&free.to_string_lossy(), answer, length) };
}

/// Starts a session with the settings in `config`, a JSON text. Returns 0, or 1 with one line in `message`.
///
/// # Safety
/// `config` ends with a zero byte; `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_start(
    config: *const c_char,
    message: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let started = unsafe { CStr::from_ptr(config) }
        .to_str()
        .map_err(|error| format!("bad configuration: {error}"))
        .and_then(Config::parse)
        .and_then(|config| super::start(&config));
    preparation::after_switching(|| ());
    match started {
        Ok(()) => 0,
        Err(why) => {
            preparation::before_switching_off();
            // SAFETY: the caller's promise.
            unsafe { copy_text(&why, message, length) };
            1
        }
    }
}

/// Stops the session. Returns the text of an [`SessionOutcome`](nthbyte_session::SessionOutcome), for [`nthbyte_pypy_release_text`]; or
/// null if no session was on. A buffer of Python's own would be native memory of the session.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_stop() -> *mut c_char {
    let outcome = super::stop();
    preparation::before_switching_off();
    outcome.map_or(null_mut(), |outcome| {
        // The text has no zero bytes.
        CString::new(outcome.to_text())
            .unwrap_or_default()
            .into_raw()
    })
}

/// The line at the end, and its like: see [`nthbyte_session::end_line::answer`]. The text is for [`nthbyte_pypy_release_text`].
///
/// # Safety
/// `request` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_say(request: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    let request = unsafe { CStr::from_ptr(request) }.to_string_lossy();
    CString::new(nthbyte_session::end_line::answer(&request))
        .unwrap_or_default()
        .into_raw()
}

/// Writes what the session has recorded so far into `answer`, a [`Mark`](nthbyte_session::Mark) as text. Returns 1, or 0 if no
/// session is running.
///
/// # Safety
/// `answer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_mark(answer: *mut c_char, length: usize) -> c_int {
    let Some(mark) = super::mark() else {
        return 0;
    };
    // SAFETY: the caller's promise.
    unsafe { copy_text(&mark.to_text(), answer, length) };
    1
}

/// Waits until the file has everything that was recorded: see [`nthbyte_session::flush`]. Returns 1 if it has, or else 0.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_flush() -> c_int {
    c_int::from(nthbyte_session::flush())
}

/// Whether this process has a profile. The child of a fork has none before its first recording.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_has_profile() -> c_int {
    c_int::from(nthbyte_session::has_profile())
}

/// The reading of `CLOCK_MONOTONIC` in nanoseconds at which the times of the profile begin; 0 without one.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_clock_start() -> u64 {
    nthbyte_session::clock_start().unwrap_or(0)
}

/// Frees what [`nthbyte_pypy_stop`] or [`nthbyte_pypy_say`] has returned.
///
/// # Safety
/// `text` came from one of them and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_release_text(text: *mut c_char) {
    // SAFETY: the caller's promise.
    drop(unsafe { CString::from_raw(text) });
}

/// Prepares `_vmprof` to be disabled and enabled again in the child of a fork, where it has closed its file.
/// Returns the descriptor to which it must write; or -1: the session continues without stacks.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_reopen_vmprof() -> c_int {
    preparation::before_switching();
    if Engine::after_fork() { DESCRIPTOR } else { -1 }
}

/// Reads stacks from `_vmprof` again, after [`nthbyte_pypy_reopen_vmprof`] and `_vmprof.enable`.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_attach_vmprof() {
    // If this fails, samples have no stacks from now on.
    if preparation::after_switching(take_over).is_ok() {
        ticks::begin_in_child();
    }
}

/// Whether Python must disable `_vmprof` after the session. It must not if the program has disabled
/// `_vmprof`, even if the program has enabled it again for itself.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_owns_vmprof() -> c_int {
    c_int::from(!Vmprof::is_taken_away())
}

/// Reverses [`nthbyte_pypy_prepare_vmprof`].
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_release_vmprof() {
    preparation::undo();
}

/// In a session through `gc.hooks`: the number of minor collections for each sample.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_minors_per_sample() -> c_int {
    let minors = gc_hooks::minors_per_sample();
    minors
        .and_then(|minors| c_int::try_from(minors).ok())
        .unwrap_or(c_int::MAX)
}

/// In a session through `gc.hooks`: reports `count` minor collections in this thread. `nanoseconds` is their duration,
/// and `used` the bytes in use after them (-1: not known). `stack` has a line for each frame, innermost first: `line
/// first_line name<TAB>file`.
///
/// # Safety
/// `stack` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_report_minors(
    count: u64,
    nanoseconds: u64,
    used: i64,
    os_thread: u64,
    stack: *const c_char,
) {
    // SAFETY: the caller's promise.
    let stack = unsafe { CStr::from_ptr(stack) }.to_string_lossy();
    let used = u64::try_from(used).ok();
    gc_hooks::report_minors(count, nanoseconds, used, os_thread, &stack);
}
