//! The consumer of the ring: the thread that writes the file, and how it is stopped before a fork and started again.
//!
//! ```text
//! thread    takes records from the ring, and is started, stopped and waited for
//! drain     makes records into blocks of the file
//! pending   samples that are at the end of the file provisionally
//! ```
//!
//! The thread runs nothing of the program and needs no lock of the interpreter's, so it can be waited for by
//! whoever holds one, but not for longer than [`LONGEST_WAIT`]: a write to a pipe that nobody reads, or to a network that
//! is gone, may never end. It is stopped before a fork; see [`crate::fork`].

mod drain;
mod pending;
mod thread;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nthbyte_profile::event::End;

use crate::lost::Lost;
use crate::outcome::{INTERNAL_ERROR, Outcome};
use crate::process::image;

pub(crate) use drain::Drain;
#[cfg(test)]
pub(crate) use pending::Pending;
use thread::{Left, Request, Running, Shared};

/// The longest that a thread of the program waits for the writer thread to go on: for room in the ring where nothing
/// shall be lost, before a fork, and at the end of the session. After that samples are lost and counted, or the fork, or the end,
/// comes without it.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Where no thread could be made, none is tried before so long: an attempt that fails takes a while, and glibc 2.41 keeps its
/// stack, in a list that it searches with the next one.
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// The writer thread as the recorder sees it. Used with the session's lock.
pub(crate) struct Writer {
    /// Set when the thread is left behind, in a write that does not end.
    is_abandoned: &'static AtomicBool,
    shared: Arc<Shared>,
    place: Place,
    /// The thread's progress when a wait for it timed out: until it has progressed, no other fork waits for it.
    stuck_at: Option<u64>,
    /// When no thread could be made.
    failed: Option<Instant>,
    limits: Limits,
}

/// Where the drain is.
enum Place {
    /// With the thread.
    Running(Running),
    /// Here: there is no thread.
    Stopped(Box<Drain>),
    /// Lost: the thread has panicked.
    Gone,
}

/// What tests change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) longest_wait: Duration,
    /// Whether threads can be made.
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

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn start(
        lost: &'static Lost,
        is_abandoned: &'static AtomicBool,
        drain: Box<Drain>,
    ) -> Result<Self, String> {
        let mut writer = Self {
            is_abandoned,
            shared: Arc::new(Shared::new(lost)),
            place: Place::Stopped(drain),
            stuck_at: None,
            failed: None,
            limits: Limits::default(),
        };
        writer.spawn(Request::Work).map_err(|error| {
            format!("cannot start the writer thread: {error}; raise the limit on threads")
        })?;
        Ok(writer)
    }

    /// The writer of a forked child: its thread comes when it is woken.
    pub(crate) fn of_child(&self, drain: Box<Drain>) -> Self {
        Self {
            is_abandoned: self.is_abandoned,
            shared: Arc::new(Shared::new(self.shared.lost)),
            place: Place::Stopped(drain),
            stuck_at: None,
            failed: None,
            limits: self.limits,
        }
    }

    /// In the child of a fork: drops what is the parent's, without touching what the parent's thread uses.
    pub(crate) fn leave_to_parent(self) {
        if matches!(self.place, Place::Running(_)) {
            std::mem::forget(self);
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.is_dead()
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
        let _ = self.ask(Request::Stop, false);
        self.place = Place::Gone;
    }

    /// Wakes the thread, or starts it if it is not there. Does not wait.
    pub(crate) fn wake(&mut self) {
        // A fork may have gone on without it before it stopped.
        self.take_back();
        match &self.place {
            Place::Running(thread) => thread.wake(),
            // Without a thread records stay in the ring, until it is full.
            Place::Stopped(_) => drop(self.spawn(Request::Work)),
            Place::Gone => {}
        }
    }

    /// Stops the thread between two writes, after it has written what is in the ring. If it was stopped before and
    /// much is in the ring, it writes that first: a program that forks all the time has it written here. Waits for [`LONGEST_WAIT`]
    /// at most; after that the thread goes on as if it had not been asked.
    pub(crate) fn stop_for_fork(&mut self) {
        self.take_back();
        if let Place::Stopped(drain) = &self.place
            && (!drain.is_due() || self.spawn(Request::Stop).is_err())
        {
            return;
        }
        if let Some(left) = self.ask(Request::Stop, false) {
            self.put(left);
        }
    }

    /// Writes everything, then the end of the profile, and closes it. `unfinished` is the outcome if that takes
    /// too long.
    pub(crate) fn finish(mut self, end: End, unfinished: Outcome) -> Outcome {
        self.take_back();
        // What one step needs the next does not, and the program's memory may be at its peak.
        image::release_again();
        self.shared.set_end(end);
        if let Place::Stopped(drain) = &self.place {
            if drain.has_nothing(&self.shared) {
                return Outcome::default();
            }
            // The write may not end, so it is the thread's; without one there is no other way.
            if self.spawn(Request::Finish).is_err() {
                return match std::mem::replace(&mut self.place, Place::Gone) {
                    Place::Stopped(drain) => drain.finish(&self.shared, end),
                    _ => Outcome::default(),
                };
            }
        }
        let left = self.ask(Request::Finish, true);
        image::release_again();
        match left {
            Some(Left::Outcome(outcome)) => outcome,
            // The thread has panicked: nobody has the drain, nor what it has counted.
            Some(_) => with_note(unfinished, INTERNAL_ERROR.to_owned()),
            None if matches!(self.place, Place::Gone) => {
                with_note(unfinished, INTERNAL_ERROR.to_owned())
            }
            None => {
                self.is_abandoned.store(true, Relaxed);
                let path = unfinished
                    .path
                    .as_deref()
                    .unwrap_or(Path::new(""))
                    .display();
                let seconds = self.limits.longest_wait.as_secs();
                let note = format!("{path} took nothing for {seconds} s; the profile is not whole");
                with_note(unfinished, note)
            }
        }
    }

    /// Asks the thread for something and waits for what it leaves; `None` if it does not in time. While it goes on it
    /// gets more time, if `has_time`.
    fn ask(&mut self, request: Request, has_time: bool) -> Option<Left> {
        let Place::Running(thread) = &self.place else {
            return None;
        };
        self.shared.set_request(request);
        thread.wake();
        let is_stuck = self.stuck_at == Some(self.shared.progress());
        let wait = if is_stuck && !has_time {
            Duration::ZERO
        } else {
            self.limits.longest_wait
        };
        let left = self.shared.wait(wait, has_time);
        match left {
            Some(_) => self.join(),
            None => {
                self.stuck_at = Some(self.shared.progress());
                if request == Request::Stop {
                    self.shared.set_request(Request::Work);
                }
            }
        }
        left
    }

    /// If the thread has stopped, has the drain back.
    fn take_back(&mut self) {
        if matches!(self.place, Place::Running(_))
            && let Some(left) = self.shared.wait(Duration::ZERO, false)
        {
            self.join();
            self.put(left);
        }
    }

    /// The thread has left something: waits for its end, which is near.
    fn join(&mut self) {
        if let Place::Running(thread) = std::mem::replace(&mut self.place, Place::Gone) {
            thread.join();
        }
        self.stuck_at = None;
        self.shared.set_request(Request::Work);
    }

    fn put(&mut self, left: Left) {
        self.place = match left {
            Left::Drain(drain) => Place::Stopped(drain),
            Left::Outcome(_) | Left::Nothing => Place::Gone,
        };
    }

    /// Starts the thread with the drain that is here, and something to do.
    fn spawn(&mut self, request: Request) -> io::Result<()> {
        if self
            .failed
            .is_some_and(|failed| failed.elapsed() < NEXT_ATTEMPT)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Place::Stopped(drain) = std::mem::replace(&mut self.place, Place::Gone) else {
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
                self.place = Place::Running(thread);
                self.failed = None;
                Ok(())
            }
            Err((drain, error)) => {
                self.place = Place::Stopped(drain);
                self.failed = Some(Instant::now());
                Err(error)
            }
        }
    }
}

fn with_note(mut outcome: Outcome, note: String) -> Outcome {
    outcome.notes.push(note);
    outcome
}
