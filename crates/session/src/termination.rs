//! A profile is completed when the system's default for SIGTERM ends the process: `kill`, `Pool.terminate()`, the stop of
//! a container.
//!
//! If the program has left SIGTERM at its default, a session replaces that by a handler. It asks the writer thread to
//! complete the profile, waits a second at most, and then ends the process as the default does. A program that installs
//! its own handler, or ignores the signal, replaces ours or never gets it. New programs (`exec`) get the default back from
//! the kernel. The first process of a container is left alone: the kernel does not deliver SIGTERM to it without a
//! handler.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};

use crate::sleeper::Sleeper;

/// How long the handler waits for the writer thread, in milliseconds.
const LONGEST_WAIT: u32 = 1000;

/// Sessions that want the handler. One may end while the next one has begun.
static SESSIONS: AtomicU32 = AtomicU32::new(0);
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Writer threads of this process that run. A forked child has none.
static WRITERS: AtomicU32 = AtomicU32::new(0);
/// The sleep of the writer thread that was started last.
static SLEEPER: AtomicPtr<Sleeper> = AtomicPtr::new(std::ptr::null_mut());

/// Whether a signal is about to end the process, so that the profile must be completed.
pub(crate) fn is_requested() -> bool {
    IS_REQUESTED.load(Acquire)
}

/// Counts a writer thread as long as it lives.
pub(crate) struct WriterCount;

impl WriterCount {
    pub(crate) fn new(sleeper: &'static Sleeper) -> Self {
        SLEEPER.store(std::ptr::from_ref(sleeper).cast_mut(), Release);
        WRITERS.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for WriterCount {
    fn drop(&mut self) {
        WRITERS.fetch_sub(1, Release);
    }
}

/// Called in the child of a fork, which has no other thread.
pub(crate) fn after_fork_in_child() {
    WRITERS.store(0, Relaxed);
}

/// Installs the handler for one more session, if SIGTERM has its default.
pub(crate) fn watch() {
    SESSIONS.fetch_add(1, AcqRel);
    install();
}

/// Removes the handler, if it is still there, at the end of the last session.
pub(crate) fn unwatch() {
    if SESSIONS.fetch_sub(1, AcqRel) == 1 {
        remove();
        // A session that has begun meanwhile saw the handler in place.
        if SESSIONS.load(Acquire) > 0 {
            install();
        }
    }
}

fn install() {
    // SAFETY: `getpid` has no preconditions.
    if unsafe { libc::getpid() } != 1 {
        replace(libc::SIG_DFL, terminated as *const () as usize);
    }
}

fn remove() {
    replace(terminated as *const () as usize, libc::SIG_DFL);
}

/// Replaces the disposition of SIGTERM, if it is the given one.
fn replace(old: libc::sighandler_t, new: libc::sighandler_t) {
    // SAFETY: zeroes are a valid `sigaction`, which the first call fills; `new` is a handler or the default.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut action) != 0
            || action.sa_sigaction != old
        {
            return;
        }
        action = std::mem::zeroed();
        action.sa_sigaction = new;
        libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut());
    }
}

/// The handler. All that it calls is safe in a signal handler.
extern "C" fn terminated(signal: libc::c_int) {
    // SAFETY: the address of this thread's `errno` is valid as long as the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    IS_REQUESTED.store(true, Release);
    // SAFETY: a sleeper is never freed. Another writer thread, of an earlier session, sees the request after its nap.
    if let Some(sleeper) = unsafe { SLEEPER.load(Acquire).as_ref() } {
        sleeper.wake();
    }
    for _ in 0..LONGEST_WAIT {
        if WRITERS.load(Acquire) == 0 {
            break;
        }
        let millisecond = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: the pointer is to a local variable.
        unsafe { libc::nanosleep(&raw const millisecond, std::ptr::null_mut()) };
    }
    remove();
    // SAFETY: the signal is blocked until this handler returns; then its default ends the process.
    unsafe {
        libc::raise(signal);
        errno.write(before);
    }
}
