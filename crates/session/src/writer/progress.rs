//! How far the writer thread has come, as the drain says it and others see it.

use std::sync::atomic::Ordering::Relaxed;

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
    pub(super) lost: &'static Lost,
    pub(super) spent: &'static Spent,
}

impl Progress {
    pub(super) fn new(lost: &'static Lost, spent: &'static Spent) -> Self {
        Self {
            is_dead: AtomicBool::new(false),
            steps: AtomicU64::new(0),
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

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// Called by the thread after each progress.
    pub(super) fn go_on(&self) {
        self.steps.store(self.steps() + 1, Relaxed);
    }
}
