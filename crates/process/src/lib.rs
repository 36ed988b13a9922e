//! The session of a process without an interpreter, and the thread and the stack of a sample: what the preloaded agent and
//! the global allocator of a Rust program share.
//!
//! ```text
//! nthbyte-program, nthbyte-global-alloc ─▶ begin: Session, the unwinder, the sampling ─▶ place, at each sample
//!                                      ─▶ end, end_at_exit: the sampling, the session
//! main_thread  when it ends before the process
//! ```

#![cfg(target_os = "linux")]

pub mod main_thread;

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, TryLockError};

use nthbyte_profile::Method;
use nthbyte_profile::event::{NodeId, ThreadId};
use nthbyte_profile::meta::READS_ARE_FORBIDDEN;
use nthbyte_session::native::Placed;
use nthbyte_session::{Config, Host, Recording, Session, SessionOutcome, native, termination};

/// Signals that end a program when a user stops it. The profile is completed first, as at SIGTERM.
pub const ENDING_SIGNALS: [i32; 2] = [libc::SIGINT, libc::SIGHUP];

/// How requests are sampled.
#[derive(Clone, Copy, Debug)]
pub struct RequestSampling {
    /// What the profile says of it.
    pub method: Method,
    /// The method by which objects of the program are sampled besides, and the program's language; `None` if none are.
    pub objects: Option<(Method, &'static str)>,
    /// Begins to know the modules: a function of `nthbyte-unwind`.
    pub know_modules: fn(&Session) -> bool,
    /// Begins to sample for the session, with this seed. Returns false if that is not possible.
    pub begin: fn(&Session, u64) -> bool,
    /// Ends that, and completes the samples that wait for their stacks.
    pub end: fn(),
}

/// The session of the process, with what samples for it.
struct Running {
    session: Session,
    sampling: RequestSampling,
}

/// The running session.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// The number of the process that the session's state in memory belongs to; 0 without a session. Another process sees
/// this number in memory that it shares with the process, after `vfork`.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The running session. `None` if another thread has it.
fn running() -> Option<MutexGuard<'static, Option<Running>>> {
    unless_held(&RUNNING)
}

/// `None` if another thread has the lock: a thread must not wait for one that does not exist any more, in the child of a
/// fork, or that waits for this one, at the end of the process.
fn unless_held<T>(lock: &'static Mutex<T>) -> Option<MutexGuard<'static, T>> {
    match lock.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The error of a start while a session is running.
pub const RUNNING_ALREADY: &str = "a session is running already: stop it first";

/// Whether a session is running.
#[must_use]
pub fn is_running() -> bool {
    running().is_none_or(|running| running.is_some())
}

/// Starts the session, if none is running. `more_notes` are sentences for the profile's reader.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin<H: Host>(
    config: &Config,
    host: &'static H,
    sampling: RequestSampling,
    more_notes: Vec<String>,
) -> Result<(), String> {
    let mut running = running().ok_or("another thread is starting or stopping a session")?;
    if running.is_some() {
        return Err(RUNNING_ALREADY.to_owned());
    }
    let seed = config.seed();
    let mut notes = Vec::new();
    if !nthbyte_unwind::is_possible() {
        notes.push(format!("there are no stacks: {READS_ARE_FORBIDDEN}"));
    }
    notes.extend(more_notes);
    let mut meta = config.meta(
        sampling
            .objects
            .map_or(sampling.method, |(method, _)| method),
        seed,
        notes,
    );
    native::add_sources(&mut meta, sampling.method, config.native_period());
    meta.interpreter = c_library();
    match sampling.objects {
        Some((_, language)) => meta.interpreter = format!("{language}, {}", meta.interpreter),
        // There is no heap of objects.
        None => _ = meta.sources.remove(0),
    }
    let session = Session::start(config, meta, host)?;
    (sampling.know_modules)(&session);
    PROCESS.store(std::process::id(), Relaxed);
    if !(sampling.begin)(&session, seed) {
        return Err("nothing can be sampled in this process".to_owned());
    }
    *running = Some(Running { session, sampling });
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

/// Ends the session, and the process goes on. `None` if none is running.
pub fn end() -> Option<SessionOutcome> {
    end_with(|session| Some(session.finish(None)))
}

/// Ends the session when the process exits. `None` if none is running.
///
/// A signal handler may have called `exit`, in a thread that was interrupted anywhere: inside `malloc`, or in the middle of
/// a recording. So nothing here takes memory of the program, except in one that links nthbyte.
pub fn end_at_exit() -> Option<SessionOutcome> {
    end_with(Session::finish_at_exit)
}

fn end_with(finish: impl FnOnce(&Session) -> Option<SessionOutcome>) -> Option<SessionOutcome> {
    if !is_own() {
        return None;
    }
    let Running { session, sampling } = running()?.take()?;
    (sampling.end)();
    // Not `guarded`: after a panic, the profile still gets its end.
    let outcome = catch_unwind(AssertUnwindSafe(|| finish(&session)));
    if outcome.is_err() {
        // It would try to end again.
        std::mem::forget(session);
    }
    outcome.ok().flatten()
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

/// The calling thread and its stack, as far as its modules are known now. `None` if there is no room to record them.
pub fn place_now(recording: &mut Recording<'_>) -> Option<(ThreadId, NodeId)> {
    let thread = calling_thread(recording)?;
    // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
    let Some(unwinder) = (unsafe { nthbyte_unwind::unwinder() }) else {
        return Some((thread, NodeId::ROOT));
    };
    unwinder.walk(recording.epoch());
    Some((thread, unwinder.stack(recording)?))
}

fn calling_thread(recording: &mut Recording<'_>) -> Option<ThreadId> {
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    recording.thread_named_by_system(os_id)
}

/// The calling thread and its stack, without the frames at the inner end whose part of the stack begins at the address
/// `inside` or below. `None` if there is no room to record them.
pub fn place(recording: &mut Recording<'_>, inside: usize) -> Option<Placed> {
    let thread = calling_thread(recording)?;
    // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
    let Some(unwinder) = (unsafe { nthbyte_unwind::unwinder() }) else {
        return Some(Placed::Now(thread, NodeId::ROOT));
    };
    unwinder.place_from(recording, thread, inside)
}
