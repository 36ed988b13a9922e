//! When the writer thread looks at the mappings whose touched part counts ([`crate::native::touched`]).

use std::time::Duration;

use nthbyte_profile::event::Nanos;

use super::stopwatch::{Budget, Stopwatch};
use crate::keeper::Keeper;

/// The least time between two looks that are not due to a composition.
const BETWEEN: Nanos = Nanos(20_000_000);
/// The processor time of all looks: one part of so many of the session's time, and some to begin with.
const SHARE: u32 = 1000;
const TO_BEGIN_WITH: Duration = Duration::from_millis(2);

/// Decides when it looks.
#[derive(Debug)]
pub(crate) struct Looks {
    budget: Budget,
    /// What the last one took.
    last: Duration,
    /// When that was.
    at: Nanos,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            budget: Budget::new(TO_BEGIN_WITH, SHARE),
            last: Duration::ZERO,
            at: Nanos(0),
        }
    }
}

impl Looks {
    /// Looks, if it is time for it, or if it `must`.
    pub(crate) fn look(&mut self, keeper: &dyn Keeper, now: Nanos, must: bool) {
        let is_due = now.0.saturating_sub(self.at.0) >= BETWEEN.0
            && self.budget.allows(Duration::from_nanos(now.0), self.last);
        if !(must || is_due) {
            return;
        }
        let watch = Stopwatch::start();
        if keeper.look(now, must) {
            self.last = watch.worked();
            self.budget.spend(self.last);
        }
        self.at = now;
    }
}
