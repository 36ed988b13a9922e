//! When a snapshot is due while the program runs: at a fixed interval, and at a new peak of memory.
//!
//! The writer thread decides ([`Schedule::consider`]), and the host takes the snapshot when it can, in a thread of the program
//! ([`take_due`]).
//!
//! A program that grows is at a new peak all the time. So a peak is due where RSS is a tenth more than at the last snapshot, and
//! not before a minute has passed since then; in the first two minutes, not before an eighth of the time until then has passed:
//! a batch job of half a minute has one near its peak. A file then has few snapshots, however long the program runs, and the
//! last one is of a moment near the highest peak.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::time::Duration;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::holders::Reason;

/// The first moment of a peak.
const FIRST: u64 = Duration::from_secs(1).as_nanos() as u64;
/// Between two peaks, and between two remarks that one was not taken.
const BETWEEN: u64 = Duration::from_secs(60).as_nanos() as u64;
/// Until then, snapshots of peaks come more often: after this part of the time until the last one.
const EARLY: u64 = Duration::from_secs(120).as_nanos() as u64;
const PART: u64 = 8;
/// Between two attempts at a peak that costs too much yet.
const BETWEEN_ATTEMPTS: u64 = Duration::from_secs(1).as_nanos() as u64;
/// A peak is so many times as high as memory at the last snapshot.
const HIGHER: f64 = 1.1;

/// The reason of the snapshot that is due, and 1; 0 if none is.
static DUE: AtomicU8 = AtomicU8::new(0);
static IS_URGENT: AtomicBool = AtomicBool::new(false);
/// The moment of the last snapshot that was begun.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The moments of the last remarks: about a peak, and about an interval.
static REMARKED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

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

/// Whether it is worth a remark in the file that a snapshot was not taken. Of peaks, which are tried again and again, one a
/// minute is; of intervals, which may be short, the first one, and two a minute.
#[must_use]
pub fn is_worth_a_remark(time: Nanos, reason: Reason) -> bool {
    is_worth(&REMARKED, time.0, reason)
}

fn is_worth(remarked: &[AtomicU64; 2], time: u64, reason: Reason) -> bool {
    let (remarked, between) = match reason {
        Reason::Peak => (&remarked[0], BETWEEN),
        Reason::Interval => (&remarked[1], BETWEEN / 2),
        _ => return true,
    };
    let last = remarked.load(Acquire);
    let is_first = last == 0 && reason == Reason::Interval;
    (is_first || time.saturating_sub(last) >= between)
        && remarked
            .compare_exchange(last, time.max(1), AcqRel, Relaxed)
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
        REMARKED.iter().for_each(|last| last.store(0, Release));
        Self::of(INTERVAL.load(Acquire))
    }

    fn of(interval: u64) -> Self {
        Self {
            interval: (interval > 0).then_some(interval),
            ..Self::default()
        }
    }

    /// How long the writer thread may rest for the interval's sake.
    pub(crate) fn rest(&self) -> Duration {
        self.interval.map_or(Duration::MAX, Duration::from_nanos)
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
        let wait = match self.last < EARLY {
            true => (self.last / PART).max(FIRST),
            false => BETWEEN,
        };
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
    use crate::snapshots::cost::judge;

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
        assert_eq!(moments(&grows)[..8], [1, 3, 5, 7, 9, 11, 13, 15]);
        let steadily = taken(None, 300, |at| 100 + 20 * at);
        for pair in moments(&steadily).windows(2) {
            let part = if pair[0] < 120 { pair[0] / 8 } else { 60 };
            assert!(pair[1] - pair[0] >= part.max(1), "{steadily:?}");
        }
        assert!(moments(&steadily)[..15].last() < Some(&120) && steadily.len() < 40);
        assert!(steadily.iter().all(|one| one.1 == Reason::Peak));
        // An hour of little growth has few.
        let slowly = taken(None, 3600, |at| 10_000 + at);
        assert_eq!(slowly.len(), 4, "{slowly:?}");
        // What has fallen and rises again is no new peak.
        let returns = taken(None, 3600, |at| if at % 100 < 50 { 100 } else { 90 });
        assert_eq!(moments(&returns), [1]);
    }

    /// A job of half a minute on one core, whose memory rises to a peak and falls: the highest snapshot is of nearly as much, at
    /// any moment of the peak, and all together stay within their budget, with the one at the end.
    #[test]
    fn a_batch_job_has_a_snapshot_near_its_peak() {
        for peak in 8..29 {
            let resident = |at: u64| match at <= peak {
                true => 1000 + 1000 * at,
                false => 3000,
            };
            // 45 ms at 30,000.
            let cost = |at: u64| resident(at) * 1500;
            let (mut schedule, mut last, mut highest, mut spent) = (Schedule::of(0), 0, 0, 0);
            for at in 0..30 {
                let now = at * SECOND;
                let due = schedule.due(now, resident(at), last);
                if due.is_some_and(|reason| judge(now, now, spent, cost(at), reason).is_ok()) {
                    (last, highest, spent) = (now, highest.max(resident(at)), spent + cost(at));
                }
            }
            let part = highest as f64 / resident(peak) as f64;
            assert!(part > 0.8, "{part} of the peak at {peak} s");
            let end = judge(30 * SECOND, 30 * SECOND, spent, cost(29), Reason::End);
            assert_eq!(end, Ok(()));
        }
    }

    #[test]
    fn remarks_about_what_is_tried_again_are_few() {
        let remarked = [const { AtomicU64::new(0) }; 2];
        let count = |reason: Reason, tenths: u64| {
            let times = (0..tenths).map(|tenth| tenth * SECOND / 10);
            times
                .filter(|&time| is_worth(&remarked, time, reason))
                .count()
        };
        assert_eq!(count(Reason::Peak, 1205), 2);
        assert_eq!(count(Reason::Interval, 1205), 5);
        assert_eq!(count(Reason::Call, 10), 10);
    }

    #[test]
    fn a_short_interval_is_kept_by_a_writer_that_rests_no_longer() {
        assert_eq!(Schedule::of(SECOND / 10).rest(), Duration::from_millis(100));
        assert_eq!(Schedule::of(0).rest(), Duration::MAX);
        let mut schedule = Schedule::of(SECOND / 10);
        let looks = (1..=50_u64).map(|look| look * (SECOND / 10 + SECOND / 1000));
        let due = looks.filter(|&now| schedule.due(now, 0, 0) == Some(Reason::Interval));
        assert_eq!(due.count(), 50);
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
