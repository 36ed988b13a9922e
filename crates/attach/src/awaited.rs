//! Since when an answer is awaited of a process that has begun what it was asked.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Since when this process waits for an answer; `None` if it does not, or what was asked has not begun.
#[must_use]
pub fn awaited_since() -> Option<Instant> {
    *SINCE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(since: Option<Instant>) {
    *SINCE.lock().unwrap_or_else(PoisonError::into_inner) = since;
}

/// While this lives, an answer is awaited.
#[derive(Debug)]
pub struct Awaited(Instant);

impl Awaited {
    pub fn new() -> Self {
        let now = Instant::now();
        set(Some(now));
        Self(now)
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        set(None);
    }
}
