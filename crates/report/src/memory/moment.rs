//! Which compositions a report is about.

use std::ops::Range;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::meta::READS_ARE_FORBIDDEN;
use nthbyte_profile::model::{Process, ProcessId};
use nthbyte_profile::{Composition, Part, Profile, Source};

use super::{ALWAYS, MemoryError, distance, is_whole};
use crate::selection::{self, At, Reading, peak_of_rss};
use crate::text;

/// A moment, with a composition of each process that ran then.
pub(super) struct Observed<'a> {
    pub(super) time: Nanos,
    /// Whether the first half of the samples found it: see [`selection::Moment::Found`].
    pub(super) is_found: bool,
    pub(super) processes: Vec<OfProcess<'a>>,
    /// The largest resident set that is known; `None` for several processes.
    pub(super) peak_rss: Option<u64>,
}

/// A process's composition.
pub(super) struct OfProcess<'a> {
    pub(super) process: ProcessId,
    pub(super) composition: &'a Composition,
    /// The C library's counts at the start of the session.
    pub(super) first: Option<&'a Composition>,
    pub(super) is_pypy: bool,
    /// Whether there is an interpreter, and not only native code.
    pub(super) has_interpreter: bool,
    /// Whether native memory was sampled.
    pub(super) has_native: bool,
    /// Whether the system let the agent read memory through the kernel, as a note says.
    pub(super) may_read: bool,
}

pub(super) fn of<'a>(
    profile: &'a Profile,
    at: At,
    within: &Range<Nanos>,
) -> Result<Observed<'a>, MemoryError> {
    if wholes(profile).next().is_none() {
        return Err(MemoryError::NotRecorded);
    }
    let mut all = wholes(profile)
        .filter(|of| within.contains(&of.time))
        .peekable();
    if all.peek().is_none() {
        return Err(MemoryError::NotThen);
    }
    let at = match at {
        At::End if within.end <= profile.end => At::Time(within.end),
        at => at,
    };
    let mut is_found = false;
    let time = match at {
        At::Peak => {
            let peak = peak(profile, within);
            is_found = peak.is_found();
            peak.time().unwrap_or(profile.end)
        }
        At::End => profile.end,
        At::Time(time) if time > profile.end => {
            let (time, end) = (text::duration(time.0), text::duration(profile.end.0));
            return Err(MemoryError::AfterTheEnd { time, end });
        }
        At::Time(time) => time,
    };
    let nearest = match at {
        // A process that ended before the last one has its own end.
        At::End => None,
        _ => all
            .map(|of| of.time)
            .min_by_key(|&other| distance(other, time)),
    };
    Ok(Observed {
        is_found,
        ..at_time(profile, nearest.unwrap_or(time), at == At::End)
    })
}

/// Several moments, in the order of time, the peak and the end among them.
pub(super) fn several(profile: &Profile, most: usize) -> Vec<(Observed<'_>, At)> {
    let mut times: Vec<Nanos> = wholes(profile).map(|of| of.time).collect();
    times.sort_unstable();
    times.dedup();
    let (Some(&last), Ok(peak)) = (times.last(), of(profile, At::Peak, &ALWAYS)) else {
        return Vec::new();
    };
    let step = times.len().div_ceil(most.max(1)).max(1);
    let (peak, is_found) = (peak.time, peak.is_found);
    let mut chosen: Vec<Nanos> = times.into_iter().step_by(step).collect();
    chosen.extend([peak, last]);
    chosen.sort_unstable();
    chosen.dedup();
    let at = |time: Nanos| match time {
        time if time == peak => At::Peak,
        time if time == last => At::End,
        time => At::Time(time),
    };
    let moments = chosen.into_iter();
    moments
        .map(|time| {
            let is_found = is_found && time == peak;
            let moment = Observed {
                is_found,
                ..at_time(profile, time, false)
            };
            (moment, at(time))
        })
        .collect()
}

/// All whole compositions, of all processes.
fn wholes(profile: &Profile) -> impl Iterator<Item = &Composition> {
    let processes = profile.processes.iter();
    processes
        .flat_map(|process| &process.compositions)
        .filter(|of| is_whole(of))
}

/// The time at which the resident sets together were largest, as far as compositions tell.
fn peak(profile: &Profile, within: &Range<Nanos>) -> selection::Moment {
    let times = wholes(profile).map(|of| of.time);
    let mut times: Vec<Nanos> = times.filter(|time| within.contains(time)).collect();
    times.sort_unstable();
    let mut sums = vec![0_u64; times.len()];
    for process in &profile.processes {
        let wholes = process.compositions.iter().filter(|of| is_whole(of));
        let mut sizes: Vec<(Nanos, u64)> = wholes
            .map(|of| (of.time, of.get(Part::Resident).unwrap_or(0)))
            .collect();
        // Of several at one time, the first one counts.
        sizes.sort_by_key(|&(time, _)| time);
        sizes.dedup_by_key(|&mut (time, _)| time);
        let mut nearest = 0;
        for (&time, sum) in times.iter().zip(&mut sums) {
            let how_far = |at: usize| sizes.get(at).map(|&(of, _)| distance(of, time));
            while how_far(nearest + 1).is_some_and(|next| Some(next) < how_far(nearest)) {
                nearest += 1;
            }
            if runs(profile, process, time)
                && let Some((_, size)) = sizes.get(nearest)
            {
                *sum = sum.saturating_add(*size);
            }
        }
    }
    let readings = times.into_iter().zip(sums);
    let readings: Vec<Reading> = readings.map(|(time, sum)| Reading::at(time, sum)).collect();
    peak_of_rss(profile, &readings).unwrap_or_default()
}

/// Whether a process ran at a time.
fn runs(profile: &Profile, process: &Process, time: Nanos) -> bool {
    process.start <= time && (time <= process.end || profile.processes.len() == 1)
}

fn is_of_forbidden_reads(note: &str) -> bool {
    note.ends_with(READS_ARE_FORBIDDEN)
}

/// The compositions nearest to a time of the processes that ran then. At the `end`: the last one of each process that ran
/// until then.
fn at_time(profile: &Profile, time: Nanos, is_end: bool) -> Observed<'_> {
    let mut processes = Vec::new();
    for (process, of) in profile.process_ids().zip(&profile.processes) {
        let runs = runs(profile, of, time);
        let mut wholes = of.compositions.iter().filter(|of| is_whole(of));
        let nearest = match is_end {
            true => wholes.next_back(),
            false => wholes.min_by_key(|of| distance(of.time, time)),
        };
        if let (true, Some(composition)) = (runs, nearest) {
            processes.push(OfProcess {
                process,
                composition,
                first: of.compositions.first(),
                is_pypy: of.meta.is_pypy(),
                has_interpreter: of.meta.has_collector(),
                has_native: of.meta.sources.iter().any(Source::is_native),
                may_read: !of.meta.notes.iter().any(|note| is_of_forbidden_reads(note)),
            });
        }
    }
    let readings = profile.memory.iter();
    let peak_rss = readings.filter_map(|of| of.peak_rss.max(of.rss)).max();
    Observed {
        time: match &processes[..] {
            [one] => one.composition.time,
            _ => time,
        },
        is_found: false,
        peak_rss: peak_rss.filter(|_| processes.len() == 1),
        processes,
    }
}
