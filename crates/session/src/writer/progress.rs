//! How far the writer thread has come, as the drain says it and others see it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use nthbyte_host::sync::{AtomicBool, AtomicU64};
use nthbyte_profile::event::Nanos;

use crate::outcome::Counted;
use crate::pace::Spent;
use crate::ring::Lost;

/// What the writer thread writes of the end of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastWords {
    pub(crate) time: Nanos,
    pub(crate) counted: Option<Counted>,
}

/// The progress of the thread, and what it counts.
pub(crate) struct Progress {
    /// Set when no more data will be written.
    is_dead: AtomicBool,
    /// Changes with each progress of the thread.
    steps: AtomicU64,
    /// How often somebody has asked for all data to be written, and up to which of these that was done.
    flushes: [AtomicU64; 2],
    pub(super) lost: &'static Lost,
    pub(super) spent: &'static Spent,
}

impl Progress {
    pub(super) fn new(lost: &'static Lost, spent: &'static Spent) -> Self {
        Self {
            is_dead: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            flushes: [AtomicU64::new(0), AtomicU64::new(0)],
            lost,
            spent,
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Relaxed)
    }

    pub(super) fn set_dead(&self) {
        self.is_dead.store(true, Relaxed);
    }

    /// Asks the thread to write all data to the file. Returns the number of the request.
    pub(super) fn ask_to_flush(&self) -> u64 {
        self.flushes[0].fetch_add(1, AcqRel) + 1
    }

    /// The number of the last request to write all data, if it has not been done.
    pub(super) fn flush_asked_for(&self) -> Option<u64> {
        let asked = self.flushes[0].load(Acquire);
        (asked > self.flushes[1].load(Relaxed)).then_some(asked)
    }

    /// Called by the thread when all data from before the request was written.
    pub(super) fn has_flushed(&self, request: u64) {
        self.flushes[1].store(request, Release);
    }

    /// Whether a request was done.
    pub(super) fn is_flushed(&self, request: u64) -> bool {
        self.flushes[1].load(Acquire) >= request
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// Called by the thread after each progress.
    pub(super) fn go_on(&self) {
        self.steps.store(self.steps() + 1, Relaxed);
    }
}
