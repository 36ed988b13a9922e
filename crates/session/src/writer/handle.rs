//! The writer thread, as the recorder sees it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nthbyte_host::process::{HostDescriptor, image};
use nthbyte_host::sync::AtomicBool;
use nthbyte_host::threads::{self, BlockedSignals, OsThread, Sleeper};

use super::drain::Drain;
use super::progress::LastWords;
use super::thread::{self, Left, ThreadRequest, ThreadState};
use crate::outcome::{INTERNAL_ERROR, SessionOutcome};
use crate::pace::Spent;
use crate::ring::Lost;
use crate::termination::WriterCount;

/// The longest time that a thread of the program waits for progress of the writer thread: for room in the ring where no
/// event may be lost, before a fork, and at the end of the session. After that, samples are counted as lost, or the
/// fork or the end proceeds without the writer thread.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// After a failure to create a thread, the next attempt comes no sooner than this. A failed attempt takes some time,
/// and glibc 2.41 keeps its stack in a list that the next attempt searches.
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// The writer thread, as the recorder sees it. The caller of each function holds the session's lock.
pub(crate) struct Writer {
    /// Set when the thread is abandoned in a write that does not end.
    is_abandoned: &'static AtomicBool,
    shared: Arc<ThreadState>,
    place: DrainOwner,
    /// The thread's progress when a wait for it timed out. Until the progress changes, no other fork waits for the
    /// thread.
    stuck_at: Option<u64>,
    /// The time of the last failure to create a thread.
    failed: Option<Instant>,
    /// See [`Writer::stay_away`].
    away: Option<WriterCount>,
    limits: Limits,
}

/// A request to write all data.
pub(crate) struct Flush {
    shared: Arc<ThreadState>,
    request: u64,
}

impl Flush {
    pub(crate) fn is_done(&self) -> bool {
        self.shared.is_flushed(self.request)
    }
}

enum DrainOwner {
    /// The thread has the drain.
    Running(OsThread),
    /// The writer has the drain: there is no thread.
    Stopped(Box<Drain>),
    /// The profile is complete. The file's descriptor may still be in the program's table.
    Ended(SessionOutcome, Option<HostDescriptor>),
    /// The drain is lost: the thread has panicked.
    Gone,
}

/// Settings that tests change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) longest_wait: Duration,
    /// Whether threads can be created.
    pub(crate) has_threads: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            longest_wait: LONGEST_WAIT,
            has_threads: true,
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn no_thread(error: io::Error) -> String {
    format!("cannot start the writer thread: {error}; raise the limit on threads")
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// One line that says why the thread could not be started.
    pub(crate) fn start(
        lost: &'static Lost,
        spent: &'static Spent,
        sleeper: &'static Sleeper,
        is_abandoned: &'static AtomicBool,
        drain: Box<Drain>,
    ) -> Result<Self, String> {
        let mut writer = Self {
            is_abandoned,
            shared: Arc::new(ThreadState::new(lost, spent, sleeper)),
            place: DrainOwner::Stopped(drain),
            stuck_at: None,
            failed: None,
            away: None,
            limits: Limits::default(),
        };
        writer.spawn(ThreadRequest::Work).map_err(no_thread)?;
        Ok(writer)
    }

    /// Starts a thread that ends at once, to find out whether it is possible.
    ///
    /// # Errors
    /// As [`Writer::start`].
    pub(crate) fn try_thread() -> Result<(), String> {
        threads::run(|| ()).map_err(no_thread)
    }

    /// The writer of a forked child. The first wake starts its thread.
    pub(crate) fn of_child(&self, drain: Box<Drain>) -> Self {
        Self {
            is_abandoned: self.is_abandoned,
            shared: Arc::new(ThreadState::new(
                self.shared.lost,
                self.shared.spent,
                self.shared.sleeper,
            )),
            place: DrainOwner::Stopped(drain),
            stuck_at: None,
            failed: None,
            away: None,
            limits: self.limits,
        }
    }

    /// Called in the child of a fork: drops the parent's data, without touching what the parent's thread uses.
    pub(crate) fn leave_to_parent(mut self) {
        // The count is the parent's.
        std::mem::forget(self.away.take());
        if matches!(self.place, DrainOwner::Running(_)) {
            std::mem::forget(self);
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.is_dead()
    }

    /// Whether there is a thread.
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.place, DrainOwner::Running(_))
    }

    pub(crate) const fn longest_wait(&self) -> Duration {
        self.limits.longest_wait
    }

    #[cfg(test)]
    pub(crate) const fn limits(&mut self) -> &mut Limits {
        &mut self.limits
    }

    /// Loses the drain, as a panic of the thread does.
    #[cfg(test)]
    pub(crate) fn lose_drain(&mut self) {
        let _ = self.ask(ThreadRequest::Stop, false);
        self.place = DrainOwner::Gone;
    }

    /// Wakes the thread, or starts it if there is none. Does not wait.
    pub(crate) fn wake(&mut self) {
        self.restart();
        if let DrainOwner::Running(_) = &self.place {
            self.shared.wake();
        }
    }

    /// Starts the thread if there is none. Does not wait.
    pub(crate) fn restart(&mut self) {
        // A fork may have stopped waiting for the thread before the thread stopped.
        self.take_back();
        // Without a thread, records stay in the ring until it is full.
        if let DrainOwner::Stopped(_) = &self.place {
            drop(self.spawn(ThreadRequest::Work));
        }
    }

    /// Asks the thread to write all data so far to the file, and wakes it. The caller waits without the session's lock.
    pub(crate) fn ask_to_flush(&mut self) -> Flush {
        let request = self.shared.ask_to_flush();
        self.wake();
        Flush {
            shared: Arc::clone(&self.shared),
            request,
        }
    }

    /// Says that there is no thread because of a fork. A signal that ends the process waits for its return.
    pub(crate) fn stay_away(&mut self) {
        if matches!(self.place, DrainOwner::Stopped(_)) && self.failed.is_none() {
            let sleeper = self.shared.sleeper;
            self.away.get_or_insert_with(|| WriterCount::new(sleeper));
        }
    }

    /// Stops the thread between two writes, after it has written the content of the ring. If there is no thread and the
    /// ring holds many records, starts it to write them first: a program that forks continually has no other time for
    /// that. Waits for [`LONGEST_WAIT`] at most; after that the thread continues as before.
    pub(crate) fn stop_for_fork(&mut self) {
        self.take_back();
        if let DrainOwner::Stopped(drain) = &self.place
            && (!drain.is_due() || self.spawn(ThreadRequest::Stop).is_err())
        {
            self.stay_away();
            return;
        }
        // Counted before the thread ends: otherwise a signal might find none.
        let away = WriterCount::new(self.shared.sleeper);
        self.ask_and_put(ThreadRequest::Stop, false);
        if matches!(self.place, DrainOwner::Stopped(_)) {
            self.away = Some(away);
        }
    }

    /// Writes all data and the end of the profile, and closes the file. Returns `unfinished` if that takes too long.
    pub(crate) fn finish(mut self, end: LastWords, unfinished: SessionOutcome) -> SessionOutcome {
        // Each step needs other pages than the one before, and the program's memory may be at its peak.
        image::release_again();
        self.shared.set_end(end);
        // A thread that was asked to stop for a fork may leave the drain instead.
        self.ask_and_put(ThreadRequest::Finish, true);
        if let DrainOwner::Stopped(drain) = &self.place {
            if drain.has_nothing(&self.shared) {
                return SessionOutcome::default();
            }
            // The write may never end, so the thread does it.
            if self.spawn(ThreadRequest::Finish).is_ok() {
                self.ask_and_put(ThreadRequest::Finish, true);
            }
        }
        image::release_again();
        match std::mem::replace(&mut self.place, DrainOwner::Gone) {
            DrainOwner::Ended(outcome, descriptor) => {
                if let Some(descriptor) = descriptor {
                    descriptor.close();
                }
                outcome
            }
            // No thread can be created, so this one has to write.
            DrainOwner::Stopped(drain) => drain.finish(&self.shared, end).0,
            // The counts are lost with the drain.
            DrainOwner::Gone => with_note(unfinished, INTERNAL_ERROR.to_owned()),
            DrainOwner::Running(_) => {
                self.is_abandoned.store(true, Relaxed);
                let path = unfinished
                    .path
                    .as_deref()
                    .unwrap_or(Path::new(""))
                    .display();
                let seconds = self.limits.longest_wait.as_secs();
                let note = format!("{path} took nothing for {seconds} s; the profile is not whole");
                let stalled = SessionOutcome {
                    is_stalled: true,
                    ..unfinished
                };
                with_note(stalled, note)
            }
        }
    }

    /// As [`Writer::ask`], and takes over what the thread leaves.
    fn ask_and_put(&mut self, request: ThreadRequest, has_time: bool) {
        if let Some(left) = self.ask(request, has_time) {
            self.put(left);
        }
    }

    /// Sends a request to the thread and waits for the result; `None` if there is none in time. With `has_time`, each
    /// progress of the thread restarts the time limit.
    fn ask(&mut self, request: ThreadRequest, has_time: bool) -> Option<Left> {
        if !matches!(self.place, DrainOwner::Running(_)) {
            return None;
        }
        self.shared.set_request(request);
        self.shared.wake();
        let is_stuck = self.stuck_at == Some(self.shared.steps());
        let wait = if is_stuck && !has_time {
            Duration::ZERO
        } else {
            self.limits.longest_wait
        };
        let left = self.shared.wait(wait, has_time);
        match left {
            Some(_) => self.join(),
            None => {
                self.stuck_at = Some(self.shared.steps());
                if request == ThreadRequest::Stop {
                    self.shared.set_request(ThreadRequest::Work);
                }
            }
        }
        left
    }

    /// Closes what the thread cannot: it has a table of its own.
    #[unsafe(link_section = "nthbyte_hot")]
    fn close_left_behind(&self) {
        if let Some(descriptor) = self.shared.take_left_behind() {
            descriptor.close();
        }
    }

    /// Takes the drain back if the thread has stopped.
    #[unsafe(link_section = "nthbyte_hot")]
    fn take_back(&mut self) {
        self.close_left_behind();
        if matches!(self.place, DrainOwner::Running(_))
            && let Some(left) = self.shared.left()
        {
            self.join();
            self.put(left);
        }
    }

    /// Waits for the end of a thread that has left its result. The end is near.
    fn join(&mut self) {
        if let DrainOwner::Running(thread) = std::mem::replace(&mut self.place, DrainOwner::Gone) {
            thread.join();
        }
        self.stuck_at = None;
        self.shared.set_request(ThreadRequest::Work);
    }

    fn put(&mut self, left: Left) {
        self.close_left_behind();
        self.place = match left {
            Left::Drain(drain) => DrainOwner::Stopped(drain),
            Left::Outcome(outcome, descriptor) => DrainOwner::Ended(outcome, descriptor),
            Left::Nothing => DrainOwner::Gone,
        };
    }

    /// Starts the thread with the drain and a request.
    fn spawn(&mut self, request: ThreadRequest) -> io::Result<()> {
        if self
            .failed
            .is_some_and(|failed| failed.elapsed() < NEXT_ATTEMPT)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Until the place is known again: a signal handler may end the process.
        let _signals = BlockedSignals::all();
        let DrainOwner::Stopped(drain) = std::mem::replace(&mut self.place, DrainOwner::Gone)
        else {
            return Ok(());
        };
        self.shared.set_request(request);
        let spawned = if self.limits.has_threads {
            thread::spawn(&self.shared, drain)
        } else {
            Err((drain, io::ErrorKind::WouldBlock.into()))
        };
        match spawned {
            Ok(thread) => {
                self.place = DrainOwner::Running(thread);
                self.failed = None;
                self.away = None;
                Ok(())
            }
            Err((drain, error)) => {
                self.place = DrainOwner::Stopped(drain);
                self.failed = Some(Instant::now());
                self.away = None;
                Err(error)
            }
        }
    }
}

fn with_note(mut outcome: SessionOutcome, note: String) -> SessionOutcome {
    outcome.notes.push(note);
    outcome
}
