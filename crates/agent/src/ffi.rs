//! What the Python face calls, with the interpreter's lock held.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use crate::cpython;
use crate::pypy;
use crate::session::{Config, Outcome};

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Starts a session with the settings in `config`, a JSON text. Returns 0, or something else with one
/// line in `message`.
///
/// # Safety
/// Called from Python code with the lock held; `config` ends with a zero; `message` has room for
/// `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_start(
    config: *const c_char,
    message: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: by the contract.
    let started = unsafe { CStr::from_ptr(config) }
        .to_str()
        .map_err(|error| format!("bad configuration: {error}"))
        .and_then(Config::parse)
        // SAFETY: by the contract.
        .and_then(|config| unsafe { start(&config) });
    match started {
        Ok(()) => 0,
        Err(why) => {
            // SAFETY: by the contract.
            unsafe { put(&why, message, length) };
            1
        }
    }
}

/// Stops the session. Returns 0 with what came of it in `result`; or 1 if there was none.
///
/// The result is a line with four numbers: samples, events lost, bytes allocated, length of the
/// path in characters. Then the path, and what is to be remarked.
///
/// # Safety
/// Called from Python code with the lock held; `result` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_stop(result: *mut c_char, length: usize) -> c_int {
    // SAFETY: by the contract.
    let Some((outcome, allocated)) = (unsafe { stop() }) else {
        return 1;
    };
    let path = outcome.path.as_deref().unwrap_or(Path::new(""));
    let path = path.to_string_lossy();
    let text = format!(
        "{} {} {allocated} {}\n{path}{}",
        outcome.samples,
        outcome.lost,
        path.chars().count(),
        outcome.error.as_deref().unwrap_or_default()
    );
    // SAFETY: by the contract.
    unsafe { put(&text, result, length) };
    0
}

/// # Safety
/// As for [`nthbyte_start`].
unsafe fn start(config: &Config) -> Result<(), String> {
    if pypy::is_here() {
        return pypy::start(config);
    }
    if !cpython::is_here() {
        return Err("cannot profile this interpreter; use CPython 3.11 to 3.15 or PyPy".to_owned());
    }
    // SAFETY: by the contract.
    unsafe { cpython::start(config) }
}

/// # Safety
/// As for [`nthbyte_stop`].
unsafe fn stop() -> Option<(Outcome, u64)> {
    if pypy::is_here() {
        return pypy::stop();
    }
    // SAFETY: by the contract.
    unsafe { cpython::stop() }
}

/// Copies as much of a text as there is room for, and a zero.
///
/// # Safety
/// `to` has room for `length` bytes.
unsafe fn put(text: &str, to: *mut c_char, length: usize) {
    let Some(room) = length.checked_sub(1) else {
        return;
    };
    let mut end = room.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` is less than `length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), end);
        to.add(end).write(0);
    }
}
