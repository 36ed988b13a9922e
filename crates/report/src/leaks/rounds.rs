//! Whether the program repeats its work. Only then growth can be a leak.
//!
//! A program that does one job and ends grows while it builds its result, steadily and to the end, as a leak does. No test
//! of the samples tells the two apart. What does is how the work comes: a service *waits* for it, again and again, and what
//! it keeps has outlived a whole round. A job has its work from the start, and is busy until it is done.
//!
//! So the evidence is time in which the process waits: not for a processor, which is the machine's doing, but for a request, a
//! message or the time. It is recorded by the agent ([`Activity`]).

use nthbyte_profile::{Activity, Profile};
use serde::Serialize;

use super::growth::START_UP;

/// The shortest run that has a verdict, in nanoseconds.
pub const SHORTEST: u64 = 20_000_000_000;

/// Growth is extrapolated to a minute if it was seen for this long, in nanoseconds.
pub const MINUTE_FROM: u64 = 45_000_000_000;

/// A program repeats its work if it waits for at least this part of the time, …
const WAITS: f64 = 0.2;

/// … and that almost all the time: in intervals that make up this part of the run, …
const THROUGHOUT: f64 = 0.8;

/// … it waits for at least this part of the interval.
const IN_INTERVAL: f64 = 0.05;

/// The fewest intervals that show it.
const FEWEST: usize = 6;

/// Whether a run repeats its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeats {
    /// It does: there are rounds, between which the program waits. Or the user says so.
    Rounds,
    /// It is not seen to: the program was busy, as in one pass.
    OnePass,
    /// The run is too short for a verdict.
    TooShort,
    /// How busy it was is not recorded.
    NotRecorded,
}

/// Whether the work is repeated, and the evidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) repeats: Repeats,
    /// The part of the time after start-up in which the program waited.
    pub(crate) waited: Option<f64>,
}

impl Rounds {
    /// Of a profile of one process. `said`: the user says that the work was repeated.
    pub(crate) fn of(profile: &Profile, said: bool) -> Self {
        let readings = profile.processes.first();
        let readings = readings.map_or(&[][..], |process| &process.activity);
        let waits = Waits::of(readings, profile.end.0);
        let repeats = match waits {
            _ if said => Repeats::Rounds,
            _ if profile.end.0 < SHORTEST => Repeats::TooShort,
            None => Repeats::NotRecorded,
            Some(waits) if waits.part >= WAITS && waits.throughout >= THROUGHOUT => Repeats::Rounds,
            Some(_) => Repeats::OnePass,
        };
        Self {
            repeats,
            waited: waits.map(|waits| waits.part),
        }
    }
}

/// How a process waits, after start-up.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// The part of the time.
    part: f64,
    /// The part of the time that lies in intervals in which it waits.
    throughout: f64,
}

impl Waits {
    fn of(readings: &[Activity], end: u64) -> Option<Self> {
        let begin = (START_UP * end as f64) as u64;
        let pairs = readings.windows(2).filter(|pair| pair[0].time.0 >= begin);
        let (mut all, mut waited, mut in_waiting, mut number) = (0.0, 0.0, 0.0, 0);
        for pair in pairs {
            let length = pair[1].time.0.saturating_sub(pair[0].time.0) as f64;
            let waits = 1.0 - pair[1].busy_since(&pair[0]);
            all += length;
            waited += waits * length;
            in_waiting += if waits >= IN_INTERVAL { length } else { 0.0 };
            number += 1;
        }
        (number >= FEWEST && all > 0.0).then(|| Self {
            part: waited / all,
            throughout: in_waiting / all,
        })
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::Meta;
    use nthbyte_profile::event::Nanos;

    use super::*;

    /// A run of some seconds, of which this part is used and this part spent ready, in each second.
    fn rounds(seconds: u64, of_second: impl Fn(u64) -> (f64, f64)) -> Repeats {
        let mut profile = Profile::empty(Meta::default());
        profile.end = Nanos(seconds * 1_000_000_000);
        let mut at = Activity::default();
        let readings = &mut profile.processes[0].activity;
        readings.push(at);
        for second in 0..seconds {
            let (used, ready) = of_second(second);
            at.time.0 += 1_000_000_000;
            at.used.0 += (used * 1e9) as u64;
            at.ready.0 += (ready * 1e9) as u64;
            readings.push(at);
        }
        Rounds::of(&profile, false).repeats
    }

    #[test]
    fn a_service_waits_and_a_job_is_busy() {
        assert_eq!(rounds(60, |_| (0.05, 0.0)), Repeats::Rounds);
        assert_eq!(rounds(60, |_| (0.7, 0.05)), Repeats::Rounds);
        assert_eq!(rounds(60, |_| (0.98, 0.0)), Repeats::OnePass);
        // A job on a busy machine, and one with threads.
        assert_eq!(rounds(60, |_| (0.3, 0.68)), Repeats::OnePass);
        assert_eq!(rounds(60, |_| (3.5, 0.0)), Repeats::OnePass);
        // A service whose start is a long job; a job that waits once, for its input.
        assert_eq!(
            rounds(60, |at| (if at < 6 { 1.0 } else { 0.1 }, 0.0)),
            Repeats::Rounds
        );
        assert_eq!(
            rounds(60, |at| (if at < 20 { 0.0 } else { 1.0 }, 0.0)),
            Repeats::OnePass
        );
        assert_eq!(rounds(19, |_| (0.05, 0.0)), Repeats::TooShort);
    }

    #[test]
    fn without_readings_nothing_is_known() {
        let mut profile = Profile::empty(Meta::default());
        profile.end = Nanos(60_000_000_000);
        assert_eq!(Rounds::of(&profile, false).repeats, Repeats::NotRecorded);
        assert_eq!(Rounds::of(&profile, true).repeats, Repeats::Rounds);
    }
}
