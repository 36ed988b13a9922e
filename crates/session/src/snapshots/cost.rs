//! What snapshots may cost: a part of the processor time that the program has used.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nthbyte_host::clock;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::holders::Reason;

use super::{RESTORING, spent};

/// The part of the program's processor time that all snapshots together may take.
const PART: f64 = 0.01;
/// The part of the recording's time that they may take together by its end, if that is more, and the most that this may be: so
/// a service that mostly waits has a snapshot of its end, and a script that ends at once pays nothing.
const PART_OF_TIME: u64 = 500;
const MOST_OF_TIME: Duration = Duration::from_millis(20);

/// Whether the program has used enough processor time for a snapshot that takes so much at this time of the recording: before
/// its end, for the snapshot of the end, too.
///
/// # Errors
/// One clause that says what it lacks.
pub fn affords(cost: Duration, reason: Reason, time: Nanos) -> Result<(), String> {
    let used = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
    let spent = spent().0 + RESTORING.load(Relaxed);
    judge(used, time.0, spent, cost.as_nanos() as u64, reason)
}

pub(super) fn judge(
    used: u64,
    time: u64,
    spent: u64,
    cost: u64,
    reason: Reason,
) -> Result<(), String> {
    let part = (used as f64 * PART) as u64;
    let of_time = (time / PART_OF_TIME).min(MOST_OF_TIME.as_nanos() as u64);
    let (allowed, cost) = match reason {
        Reason::End => (part.max(of_time), cost),
        _ => (part, 2 * cost),
    };
    let total = spent.saturating_add(cost);
    if total <= allowed {
        return Ok(());
    }
    Err(format!(
        "it would take about {} ms of processor time, and {} is {} ms",
        total.div_ceil(1_000_000),
        match allowed == part {
            true => "1 % of what the program has used",
            false => "what a program that mostly waits may spend on it",
        },
        allowed / 1_000_000,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MILLI;

    #[test]
    fn a_program_that_waits_has_a_snapshot_of_its_end_and_no_other() {
        let judge_after = |time, spent, cost, reason| judge(SECOND / 5, time, spent, cost, reason);
        let minute = 60 * SECOND;
        assert_eq!(judge_after(minute, 0, 15 * MILLI, Reason::End), Ok(()));
        assert!(judge_after(minute, 0, 15 * MILLI, Reason::Peak).is_err());
        let too_large = judge_after(minute, 0, 21 * MILLI, Reason::End).unwrap_err();
        assert!(too_large.ends_with("what a program that mostly waits may spend on it is 20 ms"));
        // What was spent before counts.
        assert!(judge_after(minute, 10 * MILLI, 15 * MILLI, Reason::End).is_err());
        // A script has not waited for long.
        assert_eq!(judge_after(2 * SECOND, 0, 4 * MILLI, Reason::End), Ok(()));
        assert!(judge_after(SECOND, 0, 4 * MILLI, Reason::End).is_err());
    }

    #[test]
    fn all_together_stay_below_one_percent() {
        assert_eq!(
            judge(60 * SECOND, 0, 300 * MILLI, 150 * MILLI, Reason::Peak),
            Ok(())
        );
        // The one of the end could not be paid for any more.
        let refused = judge(60 * SECOND, 0, 300 * MILLI, 151 * MILLI, Reason::Peak).unwrap_err();
        assert_eq!(
            refused,
            "it would take about 602 ms of processor time, and 1 % of what the program has used is 600 ms"
        );
        assert_eq!(
            judge(60 * SECOND, 0, 300 * MILLI, 300 * MILLI, Reason::End),
            Ok(())
        );
    }
}
