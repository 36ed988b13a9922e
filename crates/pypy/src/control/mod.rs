//! Starts and stops sessions for Python.
//!
//! ```text
//! entry_points   the C functions that Python calls, and their order
//! snapshot_entry the same for snapshots of who holds what
//! python         data from Python, and allocations that the agent requests from Python
//! preparation    changes around PyPy's `_vmprof` during a session
//! hooked         a session with the collector hooked
//! ```
//!
//! [`crate::gc_hooks`] has the session through `gc.hooks`.

mod entry_points;
mod hooked;
mod preparation;
mod python;
mod snapshot_entry;

use nthbyte_profile::holders::Reason;
use nthbyte_session::{Config, Mark, SessionOutcome};

use crate::gc_hooks;

/// Starts a session: with the collector hooked, or through `gc.hooks` if the configuration has `"method":
/// "gc-hooks"`.
///
/// # Errors
/// One line that says why not. If the collector cannot be hooked, a session through `gc.hooks` is still possible.
fn start(config: &Config) -> Result<(), String> {
    let method = config.pypy.get("method");
    match method.and_then(serde_json::Value::as_str) {
        Some("gc-hooks") => gc_hooks::start(config),
        _ => hooked::start(config),
    }
}

/// What the session has recorded so far. `None` if there is none.
fn mark() -> Option<Mark> {
    if gc_hooks::is_on() {
        gc_hooks::mark()
    } else {
        hooked::mark()
    }
}

/// Takes a snapshot of who holds what.
///
/// # Errors
/// One clause that says why there is none.
fn snapshot(reason: Reason, whatever: bool, bytes: u64) -> Result<(), String> {
    match gc_hooks::is_on() {
        true => Err("this PyPy's collector cannot be hooked".to_owned()),
        false => hooked::snapshot(reason, whatever, bytes),
    }
}

/// Stops the session and returns its result. `None` if there is no session.
fn stop() -> Option<SessionOutcome> {
    if gc_hooks::is_on() {
        gc_hooks::stop()
    } else {
        hooked::stop()
    }
}
