//! The session of the process, and the thread and the stack of a sample.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use nthbyte_profile::Method;
use nthbyte_profile::event::NodeId;
use nthbyte_session::native::Placed;
use nthbyte_session::process::READS_ARE_FORBIDDEN;
use nthbyte_session::{Config, Outcome, Recording, Session, native, termination};

/// Signals that end a program when a user stops it. The profile is completed first, as at SIGTERM.
const ENDING: [i32; 2] = [libc::SIGINT, libc::SIGHUP];

/// The running session.
static SESSION: Mutex<Option<Session>> = Mutex::new(None);
/// The number of the process that the session's state in memory belongs to; 0 without a session. Another process sees
/// this number in memory that it shares with the process, after `vfork`.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Starts the session.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(config: &Config) -> Result<(), String> {
    if !native::is_available() {
        return Err("libnthbyte_native.so is not preloaded; install nthbyte again".to_owned());
    }
    let seed = config.seed();
    let mut notes = Vec::new();
    if !nthbyte_unwind::is_possible() {
        notes.push(format!("there are no stacks: {READS_ARE_FORBIDDEN}"));
    }
    let mut meta = config.meta(Method::Preload, seed, notes);
    meta.interpreter = c_library();
    native::add_sources(&mut meta, config.native_period());
    // There is no interpreter with a heap.
    meta.sources.remove(0);
    termination::also_at(&ENDING);
    let session = Session::start(config, meta)?;
    nthbyte_unwind::begin(&session);
    PROCESS.store(std::process::id(), Relaxed);
    native::connect(&session, seed, place, |_| false, &[]);
    *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    Ok(())
}

/// Called in the child of a fork.
pub fn begin_in_child() {
    PROCESS.store(std::process::id(), Relaxed);
}

/// Whether the session in memory is this process's own.
pub fn is_own() -> bool {
    PROCESS.load(Relaxed) == std::process::id()
}

/// Ends the session when the process exits. `None` if none is running.
pub fn end() -> Option<Outcome> {
    if !is_own() {
        return None;
    }
    // A thread that holds the lock is here too.
    let session = SESSION.try_lock().ok()?.take()?;
    native::disconnect();
    // Not `guarded`: after a panic, the profile still gets its end.
    let outcome = catch_unwind(AssertUnwindSafe(|| session.finish(None)));
    // The slot is not used again, and other threads may still look at it.
    std::mem::forget(session);
    outcome.ok()
}

/// Has the writer thread complete the profile, because the process ends at once. Safe in a signal handler.
pub fn complete() {
    if is_own() {
        termination::complete();
    }
}

/// The C library's name and version, in place of an interpreter's.
fn c_library() -> String {
    // SAFETY: the function returns a string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// The calling thread and its stack. `None` if there is no room to record them.
fn place(recording: &mut Recording<'_>) -> Option<Placed> {
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    let thread = recording.thread_named_by(os_id, &mut native::name_of_thread)?;
    // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
    let Some(unwinder) = (unsafe { nthbyte_unwind::unwinder() }) else {
        return Some(Placed::Now(thread, NodeId::ROOT));
    };
    unwinder.place(recording, thread)
}
