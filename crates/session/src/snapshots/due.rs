//! When a snapshot is due while the program runs: at a fixed interval, and at a new peak of memory.
//!
//! The writer thread decides ([`Schedule::consider`]), and the host takes the snapshot when it can, in a thread of the program
//! ([`take_due`]).
//!
//! A program that grows is at a new peak all the time. So a peak is due where RSS is a tenth more than at the last snapshot, and
//! not before a minute has passed since then; in the first two minutes, not before as much time has passed as until then.
//! A file then has few snapshots, however long the program runs, and the last one is of a moment near the highest peak.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::time::Duration;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::holders::Reason;

/// The first moment of a peak.
const FIRST: u64 = Duration::from_secs(1).as_nanos() as u64;
/// Between two peaks, and between two remarks that one was not taken.
const BETWEEN: u64 = Duration::from_secs(60).as_nanos() as u64;
/// Between two attempts at a peak that costs too much yet.
const BETWEEN_ATTEMPTS: u64 = Duration::from_secs(1).as_nanos() as u64;
/// A peak is so many times as high as memory at the last snapshot.
const HIGHER: f64 = 1.1;

/// The reason of the snapshot that is due, and 1; 0 if none is.
static DUE: AtomicU8 = AtomicU8::new(0);
static IS_URGENT: AtomicBool = AtomicBool::new(false);
/// The moment of the last snapshot that was begun.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The moment of the last remark about a peak.
static REMARKED: AtomicU64 = AtomicU64::new(0);

/// Whether a snapshot is due. Costs one load: for paths that run often.
#[inline]
#[must_use]
pub fn is_due() -> bool {
    DUE.load(Relaxed) != 0
}

/// The reason of the snapshot that is due, once.
#[must_use]
pub fn take_due() -> Option<Reason> {
    if !is_due() {
        return None;
    }
    let due = DUE.swap(0, AcqRel);
    Reason::of_number(u64::from(due.checked_sub(1)?))
}

/// Whether the snapshot that is due is taken whatever it costs, once.
#[must_use]
pub fn take_urgency() -> bool {
    IS_URGENT.swap(false, AcqRel)
}

/// Says that a snapshot is due, whatever it costs: the process may be killed for memory, and then there is no other.
pub(crate) fn ask_at_any_cost() {
    IS_URGENT.store(true, Release);
    DUE.store(Reason::Peak as u8 + 1, Release);
}

/// Whether a peak for which no snapshot was taken is worth a remark in the file. One a minute is.
#[must_use]
pub fn is_worth_a_remark(time: Nanos) -> bool {
    let last = REMARKED.load(Acquire);
    time.0.saturating_sub(last) >= BETWEEN
        && REMARKED
            .compare_exchange(last, time.0, AcqRel, Relaxed)
            .is_ok()
}

/// Between two snapshots of this process and its children, in nanoseconds; 0 if there are none at a fixed interval.
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// Sets the interval, before the session's writer begins. Forked children have it, too.
pub(crate) fn set_interval(interval: Option<Duration>) {
    let nanos = interval.map_or(0, |interval| interval.as_nanos().max(1) as u64);
    INTERVAL.store(nanos, Release);
}

/// Notes that a snapshot was begun.
pub(super) fn begun(time: Nanos) {
    LAST.store(time.0, Release);
}

/// When snapshots of one session are due.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Between two snapshots; `None` if there are none at a fixed interval.
    interval: Option<u64>,
    /// The number of the interval in which the last one was due.
    intervals: u64,
    /// The last snapshot that this schedule knows of, and what was resident then.
    last: u64,
    resident: u64,
    attempted: u64,
}

impl Schedule {
    /// Of a session that begins, in this process.
    pub(crate) fn new() -> Self {
        DUE.store(0, Release);
        IS_URGENT.store(false, Release);
        LAST.store(0, Release);
        REMARKED.store(0, Release);
        Self::of(INTERVAL.load(Acquire))
    }

    fn of(interval: u64) -> Self {
        Self {
            interval: (interval > 0).then_some(interval),
            ..Self::default()
        }
    }

    /// Says that a snapshot is due, if one is.
    pub(crate) fn consider(&mut self, now: Nanos, resident: u64) {
        if let Some(reason) = self.due(now.0, resident, LAST.load(Acquire)) {
            DUE.store(reason as u8 + 1, Release);
        }
    }

    fn due(&mut self, now: u64, resident: u64, last: u64) -> Option<Reason> {
        if last != self.last {
            (self.last, self.resident) = (last, resident);
        }
        if let Some(interval) = self.interval {
            let intervals = now / interval;
            if intervals > self.intervals {
                self.intervals = intervals;
                return Some(Reason::Interval);
            }
        }
        let is_higher = resident as f64 > HIGHER * self.resident as f64;
        let wait = self.last.clamp(FIRST, BETWEEN);
        let is_time = now >= self.last + wait && now >= self.attempted + BETWEEN_ATTEMPTS;
        (is_higher && is_time).then(|| {
            self.attempted = now;
            Reason::Peak
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The moments in seconds at which snapshots are taken: each is, as soon as it is due.
    fn taken(
        interval: Option<u64>,
        seconds: u64,
        resident: impl Fn(u64) -> u64,
    ) -> Vec<(u64, Reason)> {
        let mut schedule = Schedule::of(interval.unwrap_or(0) * SECOND);
        let (mut last, mut taken) = (0, Vec::new());
        for at in 0..seconds {
            if let Some(reason) = schedule.due(at * SECOND, resident(at), last) {
                last = at * SECOND;
                taken.push((at, reason));
            }
        }
        taken
    }

    #[test]
    fn a_peak_is_taken_only_where_it_is_higher_and_in_the_long_run_once_a_minute() {
        let moments = |of: &[(u64, Reason)]| -> Vec<u64> { of.iter().map(|one| one.0).collect() };
        // Twice as much every second. What was resident at a snapshot is known from the look after it.
        let grows = taken(None, 300, |at| 1 << at.min(60));
        assert_eq!(moments(&grows), [1, 3, 6, 12, 24, 48, 96]);
        let steadily = taken(None, 300, |at| 100 + 10 * at);
        assert_eq!(moments(&steadily), [1, 4, 8, 16, 32, 64, 124, 184, 244]);
        assert!(steadily.iter().all(|one| one.1 == Reason::Peak));
        // An hour of little growth has few.
        let slowly = taken(None, 3600, |at| 10_000 + at);
        assert_eq!(slowly.len(), 4, "{slowly:?}");
        // What has fallen and rises again is no new peak.
        let returns = taken(None, 3600, |at| if at % 100 < 50 { 100 } else { 90 });
        assert_eq!(moments(&returns), [1]);
    }

    #[test]
    fn an_interval_is_kept_whatever_memory_does() {
        let steady = taken(Some(60), 301, |_| 100);
        let expected: Vec<_> = (1..=5).map(|at| (60 * at, Reason::Interval)).collect();
        assert_eq!(steady[1..], expected);
        assert_eq!(steady[0], (1, Reason::Peak));
    }

    #[test]
    fn what_cannot_be_paid_is_tried_again_and_what_was_missed_is_not_made_up() {
        let mut schedule = Schedule::of(10 * SECOND);
        let half = |number: u64| number * SECOND / 2;
        let peaks = (0..18).filter(|&at| schedule.due(half(at), 100, 0) == Some(Reason::Peak));
        assert_eq!(peaks.count(), 8);
        assert_eq!(schedule.due(35 * SECOND, 100, 0), Some(Reason::Interval));
        assert_eq!(schedule.due(36 * SECOND, 100, 0), Some(Reason::Peak));
        assert_eq!(schedule.due(40 * SECOND, 100, 0), Some(Reason::Interval));
    }
}
