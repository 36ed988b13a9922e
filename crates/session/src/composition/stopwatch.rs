//! The time that the writer thread spends on compositions, and its limit.

use std::time::{Duration, Instant};

/// Measures the calling thread's time.
pub(super) struct Stopwatch {
    start: Instant,
    start_of_work: Duration,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            start_of_work: processor_time(),
        }
    }

    /// The time that has passed, whether the thread had a processor or not.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The processor time that the thread has used.
    pub(super) fn worked(&self) -> Duration {
        processor_time().saturating_sub(self.start_of_work)
    }
}

/// The processor time of the calling thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local variable. The clock exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// A budget of processor time: a share of the session's time, and some to begin with.
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
