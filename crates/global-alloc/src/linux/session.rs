//! Begin and end of a session.

use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Once;

use nthbyte_process::{ENDING_SIGNALS, RequestSampling, main_thread};
use nthbyte_profile::claim::{Claim, Replaced};
use nthbyte_profile::{Distances, Method};
use nthbyte_requests::sampler;
use nthbyte_session::native::BusyCounter;
use nthbyte_session::{Config, Host, Session, native};

use super::marks;
use super::thread::{self, unobserved};
use crate::options::{Every, invalid};
use crate::{Options, Outcome};

/// The period with [`Every::Auto`] at first, in bytes.
const FIRST_AUTO_PERIOD: u64 = nthbyte_session::pace::SHORTEST_NATIVE_PERIOD;

const SAMPLING: RequestSampling = RequestSampling {
    method: Method::GlobalAllocator,
    objects: None,
    know_modules: nthbyte_unwind::begin_in_program,
    begin,
    end: || native::end(sampler::end),
};

/// Starts a session. Returns the path of its profile.
pub(crate) fn start(options: Options) -> io::Result<PathBuf> {
    if !is_global() {
        return Err(io::Error::other(
            "nothing would be sampled: make nthbyte_global_alloc::Sampled the #[global_allocator]",
        ));
    }
    unobserved(|| {
        if native::is_available() {
            return Err(busy(
                "the library of nthbyte run samples this process already: leave out nthbyte run, or this session",
            ));
        }
        let mut config = config(&options);
        config.check().map_err(invalid)?;
        if nthbyte_process::is_running() {
            return Err(busy(nthbyte_process::RUNNING_ALREADY));
        }
        let replaced = if options.force {
            Replaced::Profile
        } else {
            Replaced::Empty
        };
        let claim = Claim::new(&std::path::absolute(&config.output)?, replaced, &[])?;
        let path = claim.path().to_owned();
        config.output.clone_from(&path);
        config.claimed = true;
        match nthbyte_process::begin(&config, &Program, SAMPLING, Vec::new()) {
            Ok(()) => {
                claim.confirm();
                watch();
                Ok(path)
            }
            Err(problem) => {
                claim.withdraw();
                Err(io::Error::other(problem))
            }
        }
    })
}

/// Ends the session, if one is running.
pub(crate) fn stop() -> Outcome {
    ended(nthbyte_process::end)
}

fn ended(end: fn() -> Option<nthbyte_session::SessionOutcome>) -> Outcome {
    let outcome = unobserved(end);
    outcome.map_or_else(Outcome::default, |outcome| Outcome {
        path: outcome.path,
        samples: outcome.samples,
        lost: outcome.lost,
        notes: outcome.notes,
    })
}

fn busy(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, problem)
}

/// Whether requests of the program come here: then one is subtracted from the countdown.
fn is_global() -> bool {
    const FAR: u64 = 1 << 20;
    let thread = thread::current();
    // SAFETY: the calling thread's state. No request in between is due.
    unsafe {
        let before = (*thread).countdown;
        (*thread).countdown = FAR;
        drop(black_box(Box::new(0_u8)));
        let after = (*thread).countdown;
        (*thread).countdown = before;
        after != FAR
    }
}

fn config(options: &Options) -> Config {
    let executable = std::env::current_exe().unwrap_or_default();
    let (period, auto) = match options.every {
        Every::Bytes(bytes) => (bytes, false),
        Every::Auto => (FIRST_AUTO_PERIOD, true),
    };
    Config {
        output: options
            .output
            .clone()
            .unwrap_or_else(|| default_output(&executable)),
        claimed: false,
        period,
        auto,
        distances: if period == 1 {
            Distances::Every
        } else {
            Distances::Exponential
        },
        seed: options.seed,
        cpu_hz: None,
        native: true,
        native_frames: true,
        whole_mappings: false,
        native_problem: None,
        huge_pages: None,
        holders: Default::default(),
        no_names: false,
        snapshot_every: None,
        snapshot_signal: None,
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        executable: executable.to_string_lossy().into_owned(),
        interpreter: String::new(),
        parent_pid: None,
        memory_before: None,
        keep: None,
        tags: Default::default(),
        line_at_signal: None,
        run: None,
        pypy: Default::default(),
    }
}

/// As `nthbyte run` names it.
fn default_output(executable: &Path) -> PathBuf {
    let name = executable.file_name().unwrap_or_default().to_string_lossy();
    format!("nthbyte-{name}.{}.nthb", std::process::id()).into()
}

/// Begins to sample for a session.
fn begin(session: &Session, seed: u64) -> bool {
    let Some(period) = native::begin(session) else {
        return false;
    };
    marks::choose(period);
    sampler::begin(period, seed);
    // SAFETY: the calling thread's state.
    unsafe { sampler::join(thread::current()) };
    true
}

/// A program that samples its own requests.
struct Program;

impl Host for Program {
    fn prepare(&self) {
        nthbyte_unwind::keep_up();
    }

    fn ending_signals(&self) -> [i32; 2] {
        ENDING_SIGNALS
    }

    fn set_native_period(&self, period: u64) {
        sampler::set_period(period);
    }

    fn busy_counter(&self) -> Option<BusyCounter> {
        Some(thread::busy)
    }
}

/// Watches forks and the end of the process, from the first session on.
fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are this program's, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_child));
    });
    main_thread::watch(|| end_quietly(nthbyte_process::end));
}

extern "C" fn at_exit() {
    end_quietly(nthbyte_process::end_at_exit);
}

fn end_quietly(end: fn() -> Option<nthbyte_session::SessionOutcome>) {
    // Not `guarded`: after a panic, the profile still gets its end.
    let stopped = catch_unwind(|| ended(end));
    // Dropping what a panic carries may panic again.
    std::mem::forget(stopped);
}

unsafe extern "C" fn in_child() {
    nthbyte_process::begin_in_child();
    main_thread::watch_in_child();
    sampler::begin_in_child(std::process::id());
    // SAFETY: the calling thread's state.
    unsafe { sampler::join(thread::current()) };
}
