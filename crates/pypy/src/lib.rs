//! Sampling inside a stock PyPy.
//!
//! On x86-64 Linux the collector itself is hooked ([`hook`]). Elsewhere, and where the hook cannot be
//! placed, a sample is taken at every k-th minor collection, of which PyPy tells ([`fallback`]).

pub mod fallback;
pub mod ffi;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod hook;

use nthbyte_session::{Config, Outcome};

/// Starts a session: with the hook, or without it if Python says `"method": "gc-hooks"`.
///
/// # Errors
/// One line that says what is wrong; if it is the hook, the other method is still there.
pub fn start(config: &Config) -> Result<(), String> {
    let method = config
        .pypy
        .get("method")
        .and_then(serde_json::Value::as_str);
    if method == Some("gc-hooks") {
        return fallback::start(config);
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return hook::start(config);
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    Err("cannot sample inside PyPy on this machine: only on x86-64 Linux".to_owned())
}

/// Stops the session: what came of it. `None` if there is none.
#[must_use]
pub fn stop() -> Option<Outcome> {
    if fallback::is_on() {
        return fallback::stop();
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return hook::stop();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    None
}
