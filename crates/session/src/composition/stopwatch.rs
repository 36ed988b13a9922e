//! The time that the writer thread spends on compositions, and its limit.

use std::time::{Duration, Instant};

/// Measures time. The thread may be displaced meanwhile: then it measures too much, and the work is done more rarely.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A budget of time: a share of the session's time, and some to begin with.
#[derive(Debug)]
pub(super) struct Budget {
    to_begin_with: Duration,
    /// One part of so many.
    share: u32,
    spent: Duration,
}

impl Budget {
    pub(super) const fn new(to_begin_with: Duration, share: u32) -> Self {
        Self {
            to_begin_with,
            share,
            spent: Duration::ZERO,
        }
    }

    pub(super) fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }

    /// Whether there is a budget for so much after this time of a session.
    pub(super) fn allows(&self, session: Duration, time: Duration) -> bool {
        self.spent.saturating_add(time) <= self.to_begin_with + session / self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_the_session() {
        let millis = Duration::from_millis;
        let mut budget = Budget::new(millis(10), 500);
        assert!(budget.allows(millis(0), millis(10)));
        budget.spend(millis(8));
        assert!(!budget.allows(millis(0), millis(3)));
        assert!(!budget.allows(millis(499), millis(3)));
        assert!(budget.allows(millis(500), millis(3)));
        budget.spend(Duration::MAX);
        assert!(!budget.allows(millis(1 << 40), millis(0)));
    }
}
