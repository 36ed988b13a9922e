//! Sampling inside a stock PyPy.
//!
//! On x86-64 Linux the collector itself is hooked ([`hook`]). Elsewhere, and where the hook cannot be
//! placed, a sample is taken at every k-th minor collection, of which PyPy tells ([`fallback`]).

pub mod fallback;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod hook;

use crate::session::{Config, Outcome};

/// Whether this interpreter is PyPy.
#[must_use]
pub fn is_here() -> bool {
    // SAFETY: the name is a terminated string; RTLD_DEFAULT asks for no library of its own. Only PyPy
    // defines the symbol: it starts the interpreter in every embedding.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pypy_execute_source".as_ptr()) }.is_null()
}

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

/// Stops the session: what came of it, and the bytes allocated in it. `None` if there is none.
pub fn stop() -> Option<(Outcome, u64)> {
    if fallback::is_on() {
        return fallback::stop();
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return hook::stop();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    None
}
