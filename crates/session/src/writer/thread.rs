//! The writer thread.

use std::io;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use nthbyte_host::process::{HostDescriptor, image};
use nthbyte_host::sync::{AtomicBool, AtomicU8, Condvar, Mutex, MutexGuard};
use nthbyte_host::threads::{self, OsThread, Sleeper};
use nthbyte_host::{exit, memory, preload};
use nthbyte_profile::event::Nanos;

use super::drain::Drain;
use super::progress::{LastWords, Progress};
use crate::outcome::SessionOutcome;
use crate::pace::Spent;
use crate::ring::Lost;
use crate::termination::{self, WriterCount};

/// How long the thread sleeps if it is not woken.
const NAP: Duration = Duration::from_millis(200);
/// The library's pages are released after a block, but not more often than after a sixteenth of the thread's time, within
/// these limits. A session writes many blocks at first. It takes 0.1 ms, and as much again until the pages that the next
/// block needs are mapped; in a virtual machine whose other processors sleep, 0.6 ms, for each of them is interrupted.
const BETWEEN_RELEASES: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(60));

/// For how long the host records what waits, when the process ends, in milliseconds of CPU time and of real time: less than a
/// signal handler waits for the thread.
const LONGEST_RECORDING: u32 = 400;
const LONGEST_TO_RECORD: Duration = Duration::from_millis(2500);

const NO_END: LastWords = LastWords {
    time: Nanos(0),
    counted: None,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ThreadRequest {
    /// Continue.
    Work = 0,
    /// Write the content of the ring, return the drain and end.
    Stop = 1,
    /// Write all data and the profile's end, return the outcome and end.
    Finish = 2,
}

/// The result that the thread leaves when it ends.
pub(super) enum Left {
    Drain(Box<Drain>),
    /// The outcome, and the file's descriptor in the program's table.
    Outcome(SessionOutcome, Option<HostDescriptor>),
    /// The thread has panicked.
    Nothing,
}

/// State that the thread and the recorder share.
pub(crate) struct ThreadState {
    progress: Progress,
    request: AtomicU8,
    pub(super) sleeper: &'static Sleeper,
    exchange: Mutex<Exchange>,
    /// Whether the thread has left its result.
    has_left: AtomicBool,
    left: Condvar,
    /// Whether the thread has left a descriptor behind.
    has_left_behind: AtomicBool,
}

#[derive(Default)]
struct Exchange {
    end: Option<LastWords>,
    left: Option<Left>,
    left_behind: Option<HostDescriptor>,
}

impl Deref for ThreadState {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl ThreadState {
    pub(super) fn new(
        lost: &'static Lost,
        spent: &'static Spent,
        sleeper: &'static Sleeper,
    ) -> Self {
        Self {
            progress: Progress::new(lost, spent),
            request: AtomicU8::new(ThreadRequest::Work as u8),
            sleeper,
            exchange: Mutex::default(),
            has_left: AtomicBool::new(false),
            left: Condvar::new(),
            has_left_behind: AtomicBool::new(false),
        }
    }

    /// Ends the thread's current sleep, or its next one.
    pub(super) fn wake(&self) {
        self.sleeper.wake();
    }

    pub(super) fn set_request(&self, request: ThreadRequest) {
        self.request.store(request as u8, Release);
    }

    fn request(&self) -> ThreadRequest {
        match self.request.load(Acquire) {
            0 => ThreadRequest::Work,
            1 => ThreadRequest::Stop,
            _ => ThreadRequest::Finish,
        }
    }

    /// Sets the end of the profile, for the request to finish it.
    pub(super) fn set_end(&self, end: LastWords) {
        self.exchange().end = Some(end);
    }

    /// The thread's result, if it has left one. Takes no lock if not: a signal handler may end the process meanwhile.
    pub(super) fn left(&self) -> Option<Left> {
        if !self.has_left.load(Acquire) {
            return None;
        }
        self.take(&mut self.exchange())
    }

    fn take(&self, exchange: &mut Exchange) -> Option<Left> {
        let left = exchange.left.take()?;
        self.has_left.store(false, Relaxed);
        Some(left)
    }

    /// Waits for the thread's result; `None` if there is none within `longest`. With `has_time`, each progress of the
    /// thread restarts the time limit.
    pub(super) fn wait(&self, longest: Duration, has_time: bool) -> Option<Left> {
        let mut exchange = self.exchange();
        loop {
            let progress = self.steps();
            let waited = self
                .left
                .wait_timeout_while(exchange, longest, |exchange| exchange.left.is_none());
            exchange = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(left) = self.take(&mut exchange) {
                return Some(left);
            }
            if !has_time || self.steps() == progress {
                return None;
            }
        }
    }

    /// A descriptor in the program's table that is not needed any more, and that this thread cannot close there.
    fn leave_behind(&self, descriptor: Option<HostDescriptor>) {
        if descriptor.is_some() {
            self.exchange().left_behind = descriptor;
            self.has_left_behind.store(true, Release);
        }
    }

    /// What the thread has left behind. Takes no lock if there is nothing.
    pub(super) fn take_left_behind(&self) -> Option<HostDescriptor> {
        if !self.has_left_behind.load(Acquire) {
            return None;
        }
        let mut exchange = self.exchange();
        self.has_left_behind.store(false, Relaxed);
        exchange.left_behind.take()
    }

    fn leave(&self, left: Left) {
        let mut exchange = self.exchange();
        exchange.left = Some(left);
        self.has_left.store(true, Release);
        drop(exchange);
        self.left.notify_all();
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. The caller has blocked all signals, because signals belong to the program. Returns the drain if the
/// thread cannot be started.
///
/// The thread tells the preloaded library first that its requests are not the program's.
pub(super) fn spawn(
    shared: &Arc<ThreadState>,
    drain: Box<Drain>,
) -> Result<OsThread, (Box<Drain>, io::Error)> {
    let parcel = Arc::new(Mutex::new(Some(drain)));
    let (shared, received) = (Arc::clone(shared), Arc::clone(&parcel));
    if !exit::has_begun() {
        spare_addresses();
    }
    // Before the thread runs: on a busy machine, a signal may end the process first.
    let count = WriterCount::new(shared.sleeper);
    let spawned = OsThread::spawn(move || {
        preload::ignore_thread();
        let drain = open(&received).expect("the parcel is handed over before the spawn");
        drop(received);
        let leave = LeaveSomething(&shared);
        let left = run(drain, &shared);
        std::mem::forget(leave);
        shared.leave(left);
        drop(count);
    });
    spawned.map_err(|error| {
        let drain = open(&parcel).expect("a thread that was not started takes nothing");
        (drain, error)
    })
}

/// Where addresses are limited (`ulimit -v`), keeps glibc from reserving 64 MiB of them for the thread's `malloc`.
fn spare_addresses() {
    // SAFETY: zeroes are a valid `rlimit`, which the function fills. `mallopt` may be called at any time.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        let is_known = libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0;
        if is_known && limit.rlim_cur != libc::RLIM_INFINITY {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

fn open(parcel: &Mutex<Option<Box<Drain>>>) -> Option<Box<Drain>> {
    parcel.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The loop of the thread. It runs until a request ends it.
fn run(mut drain: Box<Drain>, shared: &ThreadState) -> Left {
    drain.enter_thread();
    let began = Instant::now();
    let mut released = began;
    let (least, most) = BETWEEN_RELEASES;
    loop {
        if let Some(ending) = termination::requested() {
            let end = LastWords {
                time: drain.now(),
                counted: None,
            };
            drain.keeper().prepare();
            drain.look();
            // A child opens its file with its first data.
            drain.work(shared);
            record_waiting(&mut drain, shared);
            drain.record_pending(shared);
            if let Some(signal) = ending.signal {
                drain.ended_by(signal, shared);
            }
            drain.abandon_snapshots(shared);
            let (outcome, descriptor) = drain.finish(shared, end);
            return Left::Outcome(outcome, descriptor);
        }
        match shared.request() {
            // The records stay in the ring until there is memory.
            ThreadRequest::Work if memory::is_short() => shared.sleeper.sleep(NAP),
            ThreadRequest::Work => {
                drain.keeper().prepare();
                if let Some(request) = shared.flush_asked_for() {
                    drain.write_out(shared);
                    shared.has_flushed(request);
                }
                let has_written = drain.work(shared);
                shared.leave_behind(drain.take_stale());
                if has_written && released.elapsed() >= (began.elapsed() / 16).clamp(least, most) {
                    // Half of this library's mapped pages are not needed until the next block.
                    image::release_again();
                    released = Instant::now();
                }
                if shared.request() == ThreadRequest::Work {
                    let longest = drain.keeper().keep().unwrap_or(NAP);
                    // The keeper takes time, and its own records need no wake.
                    if shared.request() == ThreadRequest::Work {
                        shared.sleeper.sleep(longest.min(NAP).min(drain.rest()));
                    }
                }
            }
            ThreadRequest::Stop => {
                drain.write_out(shared);
                shared.leave_behind(drain.take_stale());
                drain.leave_thread();
                return Left::Drain(drain);
            }
            ThreadRequest::Finish => {
                image::release_again();
                let end = shared.exchange().end.unwrap_or(NO_END);
                let (outcome, descriptor) = drain.finish(shared, end);
                return Left::Outcome(outcome, descriptor);
            }
        }
    }
}

/// Has the host record what waits in its own memory: time samples. The thread that ends the process may hold the session's
/// lock, and may be waiting for this one.
fn record_waiting(drain: &mut Drain, shared: &ThreadState) {
    let (began, used) = (Instant::now(), threads::cpu_millis());
    while drain.keeper().record_waiting()
        && threads::cpu_millis().saturating_sub(used) < LONGEST_RECORDING
        && began.elapsed() < LONGEST_TO_RECORD
    {
        if !drain.work(shared) {
            std::thread::yield_now();
        }
    }
    // Stacks that wait for a library.
    drain.keeper().prepare();
    drain.work(shared);
}

/// Leaves [`Left::Nothing`] if the thread panics, so that no thread waits for it.
struct LeaveSomething<'a>(&'a ThreadState);

impl Drop for LeaveSomething<'_> {
    fn drop(&mut self) {
        self.0.set_dead();
        self.0.leave(Left::Nothing);
    }
}
