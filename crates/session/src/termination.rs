//! A profile is completed when the system's default for SIGTERM ends the process: `kill`, `Pool.terminate()`, the stop of
//! a container. A host can name more signals ([`Host::ending_signals`](crate::Host::ending_signals)), and can have the profile completed at any moment
//! ([`complete`]).
//!
//! If the program has left the signal at its default, a session replaces that by a handler. It asks the writer thread to
//! complete the profile, waits until it [has had its time](is_long_enough), prints the line of the session's settings, and then ends the process as
//! the default does. A program that installs
//! its own handler, or ignores the signal, replaces ours or never gets it; if that handler calls ours, as one calls the
//! handler from before, ours ends the process. New programs (`exec`) get the default back from
//! the kernel. The first process of a container is left alone: the kernel does not deliver such a signal to it without a
//! handler.
//!
//! The code that the signal interrupts may hold what the writer thread needs: the C library's lock of `malloc`, or the
//! session's lock. So the handler returns for some milliseconds after each part of its wait, and a timer sends the signal
//! again. To the program it is as if the signal came that much later.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use nthbyte_host::keep_errno;
use nthbyte_host::sync::{AtomicI32, AtomicPtr, AtomicU32, constant, sleep_millisecond};
use nthbyte_host::threads::{self, Sleeper};

use crate::last_line;

/// How long the handler waits for the writer thread in any case, in milliseconds.
const LONG_WAIT: u32 = 1000;
/// How long it waits for a thread that gets little of the processor: `docker stop` waits for ten seconds.
const LONGEST_WAIT: u32 = 5000;
/// A thread that does not use this part of the time waits for something else than the processor.
const LEAST_USE: u32 = 20;
/// The part of it after which the interrupted code goes on.
const WAIT_AT_ONCE: u32 = 100;
/// For how long that code goes on, in milliseconds.
const PAUSE: i64 = 10;

constant! {
    /// Sessions that want the handler. One may end while the next one has begun.
    static SESSIONS: AtomicU32 = AtomicU32::new(0);
}
constant! {
    /// The process with the session. A child of `vfork` has the same memory, and other handlers.
    static PROCESS: AtomicI32 = AtomicI32::new(0);
}
constant! {
    /// The signal that is about to end the process; [`NO_SIGNAL`] for another end; 0 while none is near.
    static REQUESTED: AtomicI32 = AtomicI32::new(0);
}
constant! {
    /// Milliseconds for which handlers have waited.
    static WAITED: AtomicU32 = AtomicU32::new(0);
}
constant! {
    /// CPU time of the writer thread when the wait began, in milliseconds.
    static USED_BEFORE: AtomicU32 = AtomicU32::new(0);
}
constant! {
    /// The signals other than SIGTERM; 0 in an unused place.
    static OTHERS: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];
}
constant! {
    /// Writer threads of this process that run. A forked child has none.
    static WRITERS: AtomicU32 = AtomicU32::new(0);
}
constant! {
    /// The sleep of the writer thread that was started last.
    static SLEEPER: AtomicPtr<Sleeper> = AtomicPtr::new(std::ptr::null_mut());
}
const NO_SIGNAL: i32 = -1;

/// An end of the process that is near, so that the profile must be completed.
pub(crate) struct Ending {
    /// The name of the signal, if it is one.
    pub(crate) signal: Option<&'static str>,
}

pub(crate) fn requested() -> Option<Ending> {
    let signal = match REQUESTED.load(Acquire) {
        0 => return None,
        libc::SIGTERM => Some("SIGTERM"),
        libc::SIGINT => Some("SIGINT"),
        libc::SIGHUP => Some("SIGHUP"),
        _ => None,
    };
    Some(Ending { signal })
}

/// Has the writer thread complete the profile, because the process ends at once, and waits for it. Safe in a
/// signal handler.
pub fn complete() {
    request(NO_SIGNAL);
    wait(u32::MAX);
}

/// Counts a writer thread from before its start until its end.
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
    PROCESS.store(process(), Relaxed);
    // A signal that has arrived was the parent's.
    REQUESTED.store(0, Relaxed);
    WAITED.store(0, Relaxed);
    last_line::forget_in_child();
}

/// Installs the handler for one more session, if SIGTERM has its default; and for these signals, if they are not 0.
pub(crate) fn watch(others: [i32; 2]) {
    for (place, signal) in OTHERS.iter().zip(others) {
        if signal != 0 {
            place.store(signal, Relaxed);
        }
    }
    PROCESS.store(process(), Relaxed);
    SESSIONS.fetch_add(1, AcqRel);
    install();
}

/// Removes the handler, if it is still there, at the end of the last session.
pub(crate) fn unwatch() {
    if SESSIONS.fetch_sub(1, AcqRel) == 1 {
        remove();
        last_line::forget();
        // A session that has begun meanwhile saw the handler in place.
        if SESSIONS.load(Acquire) > 0 {
            install();
        }
    }
}

fn process() -> i32 {
    // SAFETY: no preconditions. Safe in a signal handler.
    unsafe { libc::getpid() }
}

fn handler() -> libc::sighandler_t {
    terminated as *const () as usize
}

fn install() {
    if process() != 1 {
        replace_all(libc::SIG_DFL, handler());
    }
}

fn remove() {
    replace_all(handler(), libc::SIG_DFL);
}

/// Replaces the disposition of each signal for which it is the given one.
fn replace_all(old: libc::sighandler_t, new: libc::sighandler_t) {
    let others = OTHERS.iter().map(|signal| signal.load(Relaxed));
    for signal in others.filter(|&signal| signal != 0).chain([libc::SIGTERM]) {
        replace(signal, old, new);
    }
}

fn replace(signal: libc::c_int, old: libc::sighandler_t, new: libc::sighandler_t) {
    // SAFETY: zeroes are a valid `sigaction`, which the first call fills; `new` is a handler or the default.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0
            || action.sa_sigaction != old
        {
            return;
        }
        action = std::mem::zeroed();
        action.sa_sigaction = new;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// The handler. All that it calls is safe in a signal handler.
extern "C" fn terminated(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    keep_errno(|| terminate(signal, info));
}

/// Completes the profile and ends the process, or sends the signal again.
fn terminate(signal: libc::c_int, info: *mut libc::siginfo_t) {
    if process() == PROCESS.load(Relaxed) {
        request(signal);
        let must_end = is_called(signal) || {
            // SAFETY: the kernel passes a valid pointer, and no field is read that the signal does not have.
            unsafe { is_own((*info).si_code, || (*info).si_pid()) }
        };
        if !(must_end || wait(WAIT_AT_ONCE) || has_waited_enough()) && repeat(signal) {
            return;
        }
        wait(u32::MAX);
        last_line::print();
    }
    remove();
    set_default(signal);
    // SAFETY: the signal is blocked until the handler returns; then its default ends the process.
    unsafe { libc::raise(signal) };
}

/// Whether a handler of the program's has called this one, which it has found and replaced. It does so once, and may pass
/// the signal's number only.
fn is_called(signal: libc::c_int) -> bool {
    // SAFETY: zeroes are a valid `sigaction`, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction != handler()
    }
}

/// Sets a signal to its default, whoever handles it.
fn set_default(signal: libc::c_int) {
    // SAFETY: zeroes are a valid `sigaction`: the default.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Whether the process has sent the signal to itself. No code after that may run.
fn is_own(code: libc::c_int, sender: impl FnOnce() -> libc::pid_t) -> bool {
    matches!(code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE) && sender() == process()
}

/// Sends the signal again after the pause. Returns whether that is possible.
fn repeat(signal: libc::c_int) -> bool {
    let mut timer: libc::c_int = 0;
    // SAFETY: zeroes are a valid `sigevent` and `itimerspec`, and the kernel reads and writes local variables only. In
    // the C library, the functions are in another file before 2.34. A process makes a few timers of this kind at most.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_nsec = PAUSE * 1_000_000;
        let clock = libc::CLOCK_MONOTONIC;
        libc::syscall(
            libc::SYS_timer_create,
            clock,
            &raw const event,
            &raw mut timer,
        ) == 0
            && libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const when, 0) == 0
    }
}

/// Asks the writer thread to complete the profile.
fn request(ending: i32) {
    if WAITED.load(Relaxed) == 0 {
        USED_BEFORE.store(threads::cpu_millis(), Relaxed);
    }
    REQUESTED.store(ending, Release);
    // SAFETY: a sleeper is never freed. Another writer thread, of an earlier session, sees the request after its nap.
    if let Some(sleeper) = unsafe { SLEEPER.load(Acquire).as_ref() } {
        sleeper.wake();
    }
}

/// Whether the writer thread, which has used `used` milliseconds of `waited`, has had its time: a second of CPU time, on a
/// machine that gives it so much soon.
const fn is_long_enough(waited: u32, used: u32) -> bool {
    waited >= LONGEST_WAIT
        || waited >= LONG_WAIT && (used >= LONG_WAIT || used * LEAST_USE < waited)
}

fn has_waited_enough() -> bool {
    let waited = WAITED.load(Relaxed);
    // The clock is read only where it matters.
    waited >= LONG_WAIT
        && is_long_enough(
            waited,
            threads::cpu_millis().saturating_sub(USED_BEFORE.load(Relaxed)),
        )
}

/// The milliseconds for which the process has waited for its end.
#[cfg(test)]
pub(crate) fn waited() -> u32 {
    WAITED.load(Relaxed)
}

/// Waits until the profile is complete, and for so many milliseconds at most. Returns whether it is. All waits together
/// last until the thread [has had its time](is_long_enough).
fn wait(longest: u32) -> bool {
    for _ in 0..longest {
        if WRITERS.load(Acquire) == 0 {
            return true;
        }
        if has_waited_enough() {
            break;
        }
        WAITED.fetch_add(1, Relaxed);
        sleep_millisecond();
    }
    WRITERS.load(Acquire) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gets_a_processor_now_and_then_has_time() {
        // On a processor of its own, on a quarter of one, and without any.
        assert!(!is_long_enough(999, 999) && is_long_enough(1001, 1000));
        assert!(!is_long_enough(3999, 999) && is_long_enough(4001, 1000));
        assert!(!is_long_enough(999, 0) && is_long_enough(1000, 0));
        // What waits for a lock looks at it now and then.
        assert!(is_long_enough(1000, 20) && is_long_enough(LONGEST_WAIT, 999));
    }
}
