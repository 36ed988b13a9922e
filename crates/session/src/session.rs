//! The type that hosts use: a [`Session`], in which threads record.
//!
//! # One lock
//!
//! Any thread may record, with or without an interpreter's lock. It takes the session's lock, writes its events, and
//! releases the lock. The file needs *one* order of events, with definitions before uses and numbers without gaps. With
//! one ring per thread, a later step would have to merge the rings into such an order, with one interner per thread or
//! a locked one. A single lock costs less, because contention is rare:
//!
//! - A program that allocates 1 GB/s at a period of 512 KiB takes 2,000 samples per second and frees as many
//!   sampled blocks. Each event holds the lock for 0.5 µs or less, including the stack walk: 2 ms of each second. So
//!   another thread finds the lock taken once in 500 times, and then waits for 0.25 µs on average.
//! - Time samples of 16 threads at 1,000 Hz add 16,000 records of 0.2 µs each: 3 ms.
//! - Without contention the lock costs one compare-and-exchange and one store: 5 to 10 ns of a sample's 300 ns or more.
//!
//! The ring to the writer thread has one producer, the thread with the lock, and one consumer.
//!
//! If a thread cannot take the lock for 20 ms, because the owner has lost its processor, it continues without recording.
//! The same holds for a thread that already holds the lock: in a signal handler, or in an allocation of the recorder's
//! own where the host samples `malloc`. Each such event is counted as lost.

use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use nthbyte_host::exit;
use nthbyte_host::threads::uncancelled;
use nthbyte_profile::event::{LostKind, Nanos};

use crate::begin::{begin_with_lock, child_has_memory};
use crate::outcome::{Counted, INTERNAL_ERROR, SessionOutcome};
use crate::recording::Recorder;
use crate::recording::Recording;
use crate::registry::SessionSlot;
use crate::session_state::Status;
use crate::termination;
use crate::writer::LONGEST_WAIT;

/// The error of a start while there is a session.
pub const RUNNING_ALREADY: &str = "nthbyte is running already; call nthbyte.stop() first";

/// One profiling run of this process. Dropping it ends the run, if it was not [finished](Session::finish) before.
#[derive(Debug)]
pub struct Session {
    slot: &'static SessionSlot,
}

impl std::fmt::Debug for SessionSlot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SessionSlot")
    }
}

impl Session {
    /// The memory of the session.
    pub(crate) const fn slot(&self) -> &'static SessionSlot {
        self.slot
    }

    /// A handle of the session in a slot. One of them is dropped.
    pub(crate) const fn of_slot(slot: &'static SessionSlot) -> Self {
        Self { slot }
    }

    /// Begins a recording in the calling thread. Returns `None` if that is not possible now, and counts one event of
    /// the given kind as lost. Also returns `None` if the session has ended.
    ///
    /// Costs about 30 ns, mostly for reading the clock. A recording should last about a microsecond: no other thread
    /// records meanwhile, and the caller must not run the program's code.
    #[inline(always)]
    pub fn record(&self, wanted_for: LostKind) -> Option<Recording<'_>> {
        if !self.slot.lock.acquire() {
            self.lost(wanted_for, 1);
            return None;
        }
        begin_with_lock(self.slot, Some(wanted_for))
    }

    /// Begins a recording, as [`Session::record`] does, but counts nothing as lost.
    pub(crate) fn try_record(&self) -> Option<Recording<'_>> {
        let is_ours = self.slot.lock.acquire();
        is_ours.then(|| begin_with_lock(self.slot, None)).flatten()
    }

    /// The time since the session's start. Does not take the lock. In the child of a fork, it is the parent's time
    /// until the first recording.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.slot.clock().now()
    }

    /// Counts events that could not be recorded. Any code may call this at any time, including a signal handler.
    pub fn lost(&self, kind: LostKind, events: u64) {
        self.slot.lost.add(kind, events);
    }

    /// Removes the key of a function whose object is about to be freed: another object may soon have the same address.
    /// Returns whether the host must discard the data that it derived from the function: the function was known, or the
    /// session cannot check that now.
    ///
    /// If the lock is not available, the next recording first removes all keys. Functions that are used after that are
    /// defined again.
    pub fn forget_function(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.functions.forget(key))
    }

    /// Removes the key of a type, in the same way as [`Session::forget_function`].
    pub fn forget_type(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.types.forget(key))
    }

    fn forget(&self, forget: impl FnOnce(&mut Recorder) -> bool) -> bool {
        if !self.slot.lock.acquire() {
            self.slot.must_forget_keys.store(true, Release);
            return true;
        }
        // In a child whose parent was interrupted in the middle of a recording, the recorder must not be used.
        let is_usable = self.slot.is_running() && !self.slot.fork.is_child();
        // SAFETY: the lock was acquired, and is released below.
        let was_known = match unsafe { self.slot.recorder() } {
            Some(recorder) if is_usable => forget(recorder),
            _ => true,
        };
        self.slot.lock.release();
        was_known
    }

    /// Ends the session: writes everything recorded and closes the file. Later recordings do nothing. `counted`
    /// is what this process allocated during the session.
    ///
    /// Waits for the writer thread as long as it makes progress. If it makes none for some seconds, the profile stays
    /// without its end.
    pub fn finish(&self, counted: Option<Counted>) -> SessionOutcome {
        let recorder = self.take_recorder(false);
        recorder.map_or_else(SessionOutcome::default, |recorder| {
            self.finish_with(recorder, counted)
        })
    }

    /// Ends the session because the process ends: the calling thread does not return from this function to code that it
    /// was interrupted in. It may have been interrupted by a signal, whose handler has called `exit`, inside `malloc` or in
    /// the middle of a recording. What was recorded of that sample may be missing. `None` if there is nothing to end, or if
    /// that is not possible.
    pub fn finish_at_exit(&self) -> Option<SessionOutcome> {
        exit::begin();
        if self.slot.fork.is_child() {
            // It has recorded nothing. The data is the parent's.
            self.slot.set_status(Status::Finished);
            return None;
        }
        let recorder = self.take_recorder(true)?;
        Some(self.finish_with(recorder, None))
    }

    fn finish_with(&self, recorder: Recorder, counted: Option<Counted>) -> SessionOutcome {
        let failed = self.slot.has_failed();
        self.slot.set_status(Status::Finished);
        let mut outcome = uncancelled(|| recorder.finish(counted));
        // Only now: a worker may get SIGTERM while it ends by itself (`Pool.terminate()`).
        termination::unwatch();
        if failed && outcome.path.is_some() {
            outcome.notes.push(INTERNAL_ERROR.to_owned());
        }
        outcome
    }

    /// Removes the recorder, which ends all recording. `None` if the session has ended, or if the calling thread is
    /// inside a recording that goes on: not at an exit.
    fn take_recorder(&self, is_exit: bool) -> Option<Recorder> {
        let slot = self.slot;
        let until = Instant::now() + LONGEST_WAIT;
        while !slot.lock.acquire() {
            if is_exit && slot.lock.is_held_for_recording() {
                break;
            }
            if slot.lock.is_held_by_caller() || Instant::now() >= until {
                return None;
            }
        }
        // SAFETY: this thread has the lock, which is released below. A recording that it was interrupted in never goes on.
        let place = unsafe { slot.recorder() };
        // The child of a fork of which the C library does not know (`clone`, `_Fork`): without a word, the data is the
        // parent's, and so is the writer thread.
        let is_ours = |recorder: &Recorder| recorder.meta().pid == std::process::id();
        let is_known = slot.fork.is_child() || place.as_ref().is_none_or(is_ours);
        let has_memory = is_known && (!slot.fork.is_child() || child_has_memory(slot));
        if let Some(recorder) = place
            && has_memory
            && !is_exit
        {
            // In the child of a fork: the parent finishes its own data.
            recorder.begin();
        }
        let recorder = place.take();
        slot.lock.release();
        if has_memory {
            return recorder;
        }
        // The child has recorded nothing. The data is the parent's, and another thread may have been changing it.
        std::mem::forget(recorder);
        slot.set_status(Status::Finished);
        None
    }

    /// Changes the writer's test settings between two recordings.
    #[cfg(test)]
    pub(crate) fn with_writer(&self, change: impl FnOnce(&mut crate::writer::Writer)) {
        change(self.record(LostKind::Other).unwrap().recorder.writer());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if exit::has_begun() {
            return;
        }
        let _ = self.finish(None);
        self.slot.give_back();
    }
}
