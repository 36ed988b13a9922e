//! What snapshots may cost: a part of the processor time that the program has used.

use std::time::Duration;

use nthbyte_host::clock;
use nthbyte_profile::holders::Reason;

use super::spent;

/// The part of the program's processor time that all snapshots together may take.
const PART: f64 = 0.01;
/// What they may take together by the end, however short the program is: a service that mostly waits, or a script, has a
/// snapshot of its end then.
const AT_END: Duration = Duration::from_millis(20);

/// Whether the program has used enough processor time for a snapshot that takes so much: before its end, for the snapshot of
/// the end, too.
///
/// # Errors
/// One clause that says what is missing.
pub fn affords(cost: Duration, reason: Reason) -> Result<(), String> {
    let used = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
    judge(used, spent().0, cost.as_nanos() as u64, reason)
}

fn judge(used: u64, spent: u64, cost: u64, reason: Reason) -> Result<(), String> {
    let part = (used as f64 * PART) as u64;
    let (allowed, cost) = match reason {
        Reason::End => (part.max(AT_END.as_nanos() as u64), cost),
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
            false => "what a short program may spend on it",
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
    fn a_short_program_has_a_snapshot_of_its_end_and_no_other() {
        assert_eq!(judge(SECOND / 5, 0, 15 * MILLI, Reason::End), Ok(()));
        assert!(judge(SECOND / 5, 0, 15 * MILLI, Reason::Peak).is_err());
        let too_large = judge(SECOND / 5, 0, 21 * MILLI, Reason::End).unwrap_err();
        assert!(too_large.ends_with("what a short program may spend on it is 20 ms"));
        // What was spent before counts.
        assert!(judge(SECOND, 10 * MILLI, 15 * MILLI, Reason::End).is_err());
    }

    #[test]
    fn all_together_stay_below_one_percent() {
        assert_eq!(
            judge(60 * SECOND, 300 * MILLI, 150 * MILLI, Reason::Peak),
            Ok(())
        );
        // The one of the end could not be paid for any more.
        let refused = judge(60 * SECOND, 300 * MILLI, 151 * MILLI, Reason::Peak).unwrap_err();
        assert_eq!(
            refused,
            "it would take about 602 ms of processor time, and 1 % of what the program has used is 600 ms"
        );
        assert_eq!(
            judge(60 * SECOND, 300 * MILLI, 300 * MILLI, Reason::End),
            Ok(())
        );
    }
}
