//! The session of the process, which samples by the preloaded library for native memory.

use nthbyte_process::{ENDING_SIGNALS, Sampling};
use nthbyte_profile::Method;
use nthbyte_session::native::{Placed, Request};
use nthbyte_session::{Config, Host, Recording, Session, native};

/// Starts the session.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(config: &Config) -> Result<(), String> {
    if !native::is_available() {
        return Err("libnthbyte_native.so is not preloaded; install nthbyte again".to_owned());
    }
    let sampling = Sampling {
        method: Method::Preload,
        know_modules: nthbyte_unwind::begin,
        begin: connect,
        end: native::disconnect,
    };
    nthbyte_process::begin(config, &Program, sampling)
}

fn connect(session: &Session, seed: u64) -> bool {
    native::connect(session, seed, &[])
}

/// A process without an interpreter.
struct Program;

impl Host for Program {
    fn prepare(&self) {
        nthbyte_unwind::keep_up();
    }

    fn ending_signals(&self) -> [i32; 2] {
        ENDING_SIGNALS
    }

    /// The frames of nthbyte's libraries are left out by module.
    fn place(&self, recording: &mut Recording<'_>, _: &Request) -> Option<Placed> {
        nthbyte_process::place(recording, 0)
    }
}
