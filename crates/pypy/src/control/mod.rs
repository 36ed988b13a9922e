//! What Python asks for: sessions, started and stopped.
//!
//! ```text
//! entry_points   the C functions that Python calls, and in which order
//! python         what Python has passed to the agent, and what it is asked to do
//! preparation    what surrounds PyPy's `_vmprof` during a session
//! hooked         a session with the collector hooked
//! ```
//!
//! A session through `gc.hooks` is [`crate::gc_hooks`].

mod entry_points;
mod hooked;
mod preparation;
mod python;

use nthbyte_session::{Config, Outcome};

use crate::gc_hooks;

/// Starts a session: with the collector hooked, or through `gc.hooks` if Python says `"method": "gc-hooks"`.
///
/// # Errors
/// One line that says what is wrong; if the collector cannot be hooked, the other method is still there.
fn start(config: &Config) -> Result<(), String> {
    let method = config.pypy.get("method");
    match method.and_then(serde_json::Value::as_str) {
        Some("gc-hooks") => gc_hooks::start(config),
        _ => hooked::start(config),
    }
}

/// Stops the session: what came of it. `None` if there is none.
fn stop() -> Option<Outcome> {
    if gc_hooks::is_on() {
        gc_hooks::stop()
    } else {
        hooked::stop()
    }
}
