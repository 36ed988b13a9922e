//! The entry points that the Python face calls, whatever the method.

use std::ffi::{CStr, c_char, c_int};

use nthbyte_session::{Config, copy_text};

/// Starts a session with the settings in `config`, a JSON text. Returns 0, or something else with one
/// line in `message`.
///
/// # Safety
/// Called from Python code; `config` ends with a zero; `message` has room for `length` bytes.
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
        .and_then(|config| crate::start(&config));
    match started {
        Ok(()) => 0,
        Err(why) => {
            // SAFETY: by the contract.
            unsafe { copy_text(&why, message, length) };
            1
        }
    }
}

/// Stops the session. Returns 0 with the JSON of an [`Outcome`](nthbyte_session::Outcome) in `result`; or 1
/// if there was none.
///
/// # Safety
/// Called from Python code; `result` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_stop(result: *mut c_char, length: usize) -> c_int {
    let Some(outcome) = crate::stop() else {
        return 1;
    };
    // SAFETY: by the contract.
    unsafe { copy_text(&outcome.to_json(), result, length) };
    0
}
