//! Whether the program repeats its work. Only then growth can be a leak.
//!
//! A program that does one job and ends grows while it builds its result, steadily and to the end, as a leak does. No test
//! of the samples tells the two apart. What does is how the work comes: a service *waits* for it, again and again, and what
//! it keeps has outlived a whole round. A job has its work from the start, and is busy until it is done.
//!
//! So the evidence is time in which the process waits: not for a processor, which is the machine's doing, but for a request, a
//! message or the time. It is recorded by the agent ([`Activity`]).
//!
//! A job that collects its result from elsewhere waits as well, for each part of it. It keeps much of what it allocates, where a
//! service needs memory for each request that it does not keep; and it keeps that in one call, where a service's calls return.

use std::collections::HashSet;

use nthbyte_profile::event::{NodeId, SampleId};
use nthbyte_profile::{Activity, Profile};
use serde::Serialize;

use super::analysis::Analysis;
use super::findings::Finding;
use super::growth::START_UP;

/// The shortest run that has a verdict, in nanoseconds.
pub const SHORTEST: u64 = 20_000_000_000;

/// Growth is extrapolated to a minute if it was seen for this long, in nanoseconds.
pub const MINUTE_FROM: u64 = 45_000_000_000;

/// Growth of fewer bytes is not called a leak before the run is longer, unless the user says that the work is repeated: so much is
/// in the histories, counters and late start-up of programs that leak nothing.
pub(crate) const NOTABLE: f64 = 1024.0 * 1024.0;

/// A program repeats its work if it waits for at least this part of the time in which it was not kept waiting for a processor, …
const WAITS: f64 = 0.2;

/// … and that almost all the time: in intervals that make up this part of the run, …
const THROUGHOUT: f64 = 0.8;

/// … it waits for at least this part of the interval.
const IN_INTERVAL: f64 = 0.05;

/// What grows is a result that is being collected, if it is at least this part of all that the program allocates, …
const COLLECTS: f64 = 0.5;

/// … or if it is this part, and is allocated by a function that is never seen to return: the loop over the work is in it.
const COLLECTS_IN_ONE_CALL: f64 = 0.2;

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
    /// It waits, but keeps much of what it allocates, as a job that collects its result from elsewhere.
    Collects,
    /// The run is too short for a verdict.
    TooShort,
    /// How busy it was is not recorded.
    NotRecorded,
}

/// Whether the work is repeated, and the evidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) repeats: Repeats,
    /// The part of the time after start-up in which the program waited, without that in which it was ready to run.
    pub(crate) waited: Option<f64>,
    pub(super) said: bool,
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
            said,
        }
    }

    /// Whether the work is repeated, and nobody had to say so.
    pub(crate) fn is_seen(&self) -> bool {
        self.repeats == Repeats::Rounds && !self.said
    }
}

impl Analysis<'_> {
    /// Whether what grows is as in a job that collects its result from elsewhere.
    pub(super) fn collects(&self, findings: &[Finding]) -> bool {
        let part = self.collected(findings);
        let largest = findings
            .iter()
            .max_by(|one, other| one.grown.estimate.total_cmp(&other.grown.estimate));
        part >= COLLECTS
            || part >= COLLECTS_IN_ONE_CALL
                && largest.is_some_and(|finding| self.is_in_one_call(finding))
    }

    /// Whether all that the finding's threads allocate while it grows is allocated in one call of its function, as far as can be
    /// seen: a sample elsewhere shows that it has returned.
    pub(super) fn is_in_one_call(&self, finding: &Finding) -> bool {
        let (profile, frames) = (self.profile, &self.sites.frames);
        let (samples, closing) = (&profile.samples, self.closing);
        let group = |frame: u32| {
            let frame = profile.frames.get(frame as usize)?;
            Some(frames.group[frame.function as usize])
        };
        let grows = || {
            let lives = self.lives(&finding.lives);
            lives.filter(|life| f64::from(life.birth[1]) > START_UP)
        };
        let Some(function) = grows().next().and_then(|life| {
            let own = frames.own[self.stack(life).index()];
            group(own.frame)
        }) else {
            return false;
        };
        // Parents come before their children.
        let mut calls = vec![false; profile.stacks.len()];
        for (number, node) in profile.stacks.iter().enumerate().skip(1) {
            calls[number] = calls[node.parent.index()] || group(node.frame) == Some(function);
        }
        let threads: HashSet<_> = grows().map(|life| samples.thread(life.sample)).collect();
        let born = || grows().map(|life| samples.time(life.sample));
        let (first, last) = (born().min(), born().max().min(Some(closing)));
        let elsewhere = samples.ids().filter(|&id| {
            let at = Some(samples.time(id));
            let stack = samples.stack(id);
            stack != NodeId::ROOT && at > first && at < last && !calls[stack.index()]
        });
        !elsewhere
            .map(|id| samples.thread(id))
            .any(|thread| threads.contains(&thread))
    }

    /// The part of what the program allocates after start-up that these findings have grown by. A block that a container has
    /// outgrown does not count: it was moved.
    fn collected(&self, findings: &[Finding]) -> f64 {
        if findings.is_empty() {
            return 0.0;
        }
        let mut moved: HashSet<SampleId> = HashSet::new();
        let (mut grown, mut contained) = (0.0, 0.0);
        for finding in findings {
            let parts = finding.parts.iter().map(|part| part.grown.estimate);
            grown += finding.grown.estimate + parts.sum::<f64>();
            if finding.container.is_some()
                && let Some(chain) = self.container(&finding.lives, 0.0)
            {
                moved.extend(&chain.blocks);
                contained += finding.grown.estimate;
            }
        }
        let samples = &self.profile.samples;
        let after = samples.ids().filter(|&id| {
            let born = self.clocks.moment(samples.time(id));
            f64::from(born[1]) > START_UP && !moved.contains(&id)
        });
        let weights = after.map(|id| self.weights[samples.shape_id(id).0 as usize].bytes);
        grown / (weights.sum::<f64>() + contained).max(1.0)
    }
}

/// How a process waits, after start-up.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// The part of the time in which it was not kept waiting for a processor.
    part: f64,
    /// The part of the time that lies in intervals in which it waits.
    throughout: f64,
}

impl Waits {
    fn of(readings: &[Activity], end: u64) -> Option<Self> {
        let begin = (START_UP * end as f64) as u64;
        let pairs = readings.windows(2).filter(|pair| pair[0].time.0 >= begin);
        let (mut all, mut own, mut waited) = (0.0, 0.0, 0.0);
        let (mut in_waiting, mut number) = (0.0, 0);
        for pair in pairs {
            let length = pair[1].time.0.saturating_sub(pair[0].time.0) as f64;
            let waits = 1.0 - pair[1].busy_since(&pair[0]);
            // On a busy machine most of the time may be spent ready, by a service as by a job.
            let ready = pair[1].ready.0.saturating_sub(pair[0].ready.0) as f64;
            all += length;
            own += (length - ready).max(0.0);
            waited += waits * length;
            in_waiting += if waits >= IN_INTERVAL { length } else { 0.0 };
            number += 1;
        }
        (number >= FEWEST && all > 0.0).then(|| Self {
            part: waited / f64::max(own, 1.0),
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
        // A service on a busy machine.
        assert_eq!(rounds(60, |_| (0.1, 0.75)), Repeats::Rounds);
        assert_eq!(rounds(60, |_| (0.1, 0.88)), Repeats::OnePass);
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
