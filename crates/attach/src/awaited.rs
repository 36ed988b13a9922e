//! Since when an answer is awaited of a process that has begun what it was asked.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whoever asks has one, and another thread may look at it meanwhile.
#[derive(Debug, Default)]
pub struct Awaited(Mutex<Option<Instant>>);

impl Awaited {
    /// Since when; `None` if nothing was asked, it has not begun, or it is done.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process has begun.
    pub(crate) fn begin(&self) -> Begun<'_> {
        let now = Instant::now();
        self.set(Some(now));
        Begun(self, now)
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// While this lives, the answer is awaited.
pub(crate) struct Begun<'a>(&'a Awaited, Instant);

impl Begun<'_> {
    pub(crate) fn elapsed(&self) -> Duration {
        self.1.elapsed()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_awaited_from_the_beginning_to_the_end() {
        let awaited = Awaited::default();
        assert!(awaited.since().is_none());
        for _ in 0..2 {
            let begun = awaited.begin();
            assert_eq!(awaited.since(), Some(begun.1));
            drop(begun);
            assert!(awaited.since().is_none());
        }
    }
}
