//! A process that was killed, probably for memory: when it was last seen, how near its limit was, and what had grown.
//!
//! Such a process says nothing when it ends. Known are the last reading of a limit (`nthbyte_profile::pressure`), the last
//! reading of the resident set, and the samples until then.

use std::collections::HashSet;
use std::fs;

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::model::ProcessId;
use nthbyte_profile::pressure::{Alarm, MemoryLimit};
use nthbyte_profile::{Pressure, Profile};
use serde::Serialize;

use super::places::{By, Places, ranked};
use crate::aggregate::Aggregate;
use crate::estimate::{Estimate, Estimator, Totals};
use crate::holders::{HeldBy, Keepers};
use crate::leaks::{LeakPlace, name};
use crate::selection::{Alive, Moment, lifetimes_are_known};
use crate::text;

/// From this part of its limit on, a process that is gone was probably killed for it.
const NEAR: f64 = 0.85;
/// An alarm says so, too, if it was raised so many nanoseconds before the end at most.
const LATELY: u64 = 60_000_000_000;
/// A place that has less than this part of what has grown is not named.
const WORTH_NAMING: f64 = 0.1;
/// The growth of so many nanoseconds before the end is looked at by itself.
const MINUTE: u64 = 60_000_000_000;

/// A process near its limit that is gone.
#[derive(Clone, Debug, Serialize)]
pub struct Killed {
    /// Its number.
    pub pid: u32,
    /// The time of the last event: nanoseconds since 1970 UTC.
    pub last_seen_unix_nanos: u64,
    /// Whether it still runs on this machine.
    pub is_running: bool,
    /// Its last resident set size, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<u64>,
    /// What limits its memory, in words.
    pub limit: &'static str,
    /// The limit in bytes, and what was in use of it at the last reading.
    pub most: u64,
    /// See `most`.
    pub used: u64,
    /// How many processes of its control group the kernel had killed for memory by then.
    pub kills: u64,
    /// What has grown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrownMemory>,
    /// The same of the last minute, if the growth began before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_minute: Option<GrownMemory>,
    #[serde(skip)]
    is_of_addresses: bool,
    #[serde(skip)]
    is_one_of_several: bool,
}

/// Memory that was allocated from a moment on and was alive at the end.
#[derive(Clone, Debug, Serialize)]
pub struct GrownMemory {
    /// The moment: nanoseconds since 1970 UTC.
    pub since_unix_nanos: u64,
    /// All of it.
    pub bytes: Estimate,
    /// What of it was allocated for the line that has most.
    pub of_place: Estimate,
    /// That line.
    pub place: LeakPlace,
    /// Who holds it, if a snapshot says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<HeldBy>,
}

impl Killed {
    /// The process of the profile that was nearest to its limit when it was killed; `None` if none was.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Self> {
        let candidates = profile.process_ids().filter_map(|number| {
            let process = &profile.processes[number.index()];
            // A reason is known then: a signal, or a full disk.
            let is_gone = !process.complete && process.ended_by.is_none();
            let last = *process.pressure.last().filter(|_| is_gone)?;
            let alarms = process.pressure.iter();
            let is_late = |one: &&Pressure| one.time.0 + LATELY >= process.end.0;
            let had_alarm = alarms.filter(is_late).any(|one| one.alarm != Alarm::None);
            (last.part() >= NEAR || had_alarm || last.kills > 0).then_some((number, last))
        });
        let (number, last) =
            candidates.max_by(|one, other| one.1.part().total_cmp(&other.1.part()))?;
        let estimator = Aggregate::of_stacks(profile, Moment::End).estimator;
        Some(Self::process(profile, &estimator, number, &last))
    }

    fn process(
        profile: &Profile,
        estimator: &Estimator,
        number: ProcessId,
        last: &Pressure,
    ) -> Self {
        let process = &profile.processes[number.index()];
        let memory = profile.memory_of(number);
        let readings = || memory.iter().filter_map(|one| Some((one.time, one.rss?)));
        let rss = readings().next_back().map(|(_, rss)| rss);
        // It has grown since it last had half of what it had at the end.
        let half = readings().rfind(|&(_, of)| of <= rss.unwrap_or(0) / 2);
        let since = half.map_or(process.start, |(time, _)| time);
        let minute = Nanos(process.end.0.saturating_sub(MINUTE));
        let growth = |since| GrownMemory::of(profile, estimator, number, since);
        Self {
            pid: process.meta.pid,
            last_seen_unix_nanos: unix(profile, process.end),
            is_running: is_running(&process.meta),
            rss,
            limit: last.limit.name(),
            most: last.most,
            used: last.used,
            kills: last.kills,
            growth: growth(since),
            last_minute: (since < minute).then(|| growth(minute)).flatten(),
            is_of_addresses: last.limit == MemoryLimit::Addresses,
            is_one_of_several: profile.processes.len() > 1,
        }
    }

    /// What happened, in sentences, the most important first.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let who = match self.is_one_of_several {
            true => format!("Process {} was last seen", self.pid),
            false => "Last seen".to_owned(),
        };
        let most = text::bytes(self.most as f64);
        // Several processes may share the limit.
        let amount = match self.rss {
            Some(rss) if !self.is_of_addresses => {
                let all = match self.used > rss + rss / 10 {
                    true => format!(
                        ", {} of it in use by all processes",
                        text::bytes(self.used as f64)
                    ),
                    false => String::new(),
                };
                format!(
                    "RSS {} of {most} ({}{all})",
                    text::bytes(rss as f64),
                    self.limit
                )
            }
            _ => format!(
                "{} of {most} in use ({})",
                text::bytes(self.used as f64),
                self.limit
            ),
        };
        let verdict = match (self.is_running, self.kills) {
            (true, _) => "near its limit, and still running".to_owned(),
            (false, 0) => "probably killed for memory".to_owned(),
            (false, kills) => {
                format!(
                    "probably killed for memory: the kernel had killed {kills} of its control group"
                )
            }
        };
        let time = time_of_day(self.last_seen_unix_nanos);
        let mut first = format!("{who} at {time} UTC, {amount}: {verdict}");
        let mut more = Vec::new();
        if let Some(growth) = &self.growth {
            first = format!("{first}; {}", growth.clause());
            if let Some(minute) = &self.last_minute {
                more.push(format!("In its last minute: {}.", minute.clause()));
            }
        }
        more.insert(0, format!("{first}."));
        more
    }
}

impl GrownMemory {
    /// `None` where nothing of it was sampled, or where it is not known what was alive.
    fn of(
        profile: &Profile,
        estimator: &Estimator,
        process: ProcessId,
        since: Nanos,
    ) -> Option<Self> {
        if !lifetimes_are_known(profile) {
            return None;
        }
        let places = Places::of(profile);
        let alive = Alive::at(profile, Moment::End);
        let counts = |id: SampleId| {
            let samples = &profile.samples;
            let thread = samples.site(samples.site_id(id)).thread;
            (samples.time(id) >= since && profile.process_of(thread) == process)
                .then(|| alive.totals(id))
                .flatten()
        };
        let sums = places.sums(counts);
        let mut whole = Totals::default();
        let ids = || profile.samples.ids().filter(|&id| counts(id).is_some());
        ids().filter_map(counts).for_each(|of| whole.add(of));
        let lines = places.group(&sums, By::OwnLine).into_iter();
        let lines = ranked(lines.map(|(key, sum)| (key, estimator.bytes(&sum))));
        let first = lines.first()?;
        let bytes = estimator.bytes(&whole);
        if first.figure.estimate < WORTH_NAMING * bytes.estimate {
            return None;
        }
        let of_line = places.at(first.key, By::OwnLine);
        let samples: HashSet<SampleId, RandomState> = ids()
            .filter(|&id| of_line[profile.samples.site_id(id).0 as usize])
            .collect();
        Some(Self {
            since_unix_nanos: unix(profile, since),
            bytes,
            of_place: first.figure,
            place: places.place(first.key),
            held_by: Keepers::of(profile).holder(&samples),
        })
    }

    /// `1.10 GiB of it since 13:58 from load_batch app.py:12 (held by cache, dict of 40 batches)`.
    fn clause(&self) -> String {
        let held = match &self.held_by {
            Some(held) => format!(" ({})", held.line()),
            None => String::new(),
        };
        format!(
            "{} of it since {} from {}{held}",
            text::bytes(self.of_place.estimate),
            time_of_day(self.since_unix_nanos),
            name(&self.place)
        )
    }
}

fn unix(profile: &Profile, time: Nanos) -> u64 {
    let began = profile.processes.first();
    let began = began.map_or(0, |first| {
        first.meta.started_unix_nanos.saturating_sub(first.start.0)
    });
    began.saturating_add(time.0)
}

/// `14:02:11`.
fn time_of_day(unix_nanos: u64) -> String {
    let seconds = unix_nanos / 1_000_000_000;
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", seconds % 60)
}

/// Whether the process is there on this machine: one of its number that began before the session.
fn is_running(meta: &nthbyte_profile::Meta) -> bool {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if meta.host.as_deref() != Some(host.trim()) {
        return false;
    }
    let began = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", meta.pid)).ok()?;
        // The name may contain spaces and brackets. A zombie has ended.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks: u64 = fields.get(19)?.parse().ok()?;
        let all = fs::read_to_string("/proc/stat").ok()?;
        let boot = all.lines().find_map(|line| line.strip_prefix("btime "))?;
        let boot: u64 = boot.trim().parse().ok()?;
        (fields.first() != Some(&"Z")).then_some(boot + ticks / 100)
    };
    // The kernel's two clocks may differ by a second.
    began().is_some_and(|seconds| seconds <= meta.started_unix_nanos / 1_000_000_000 + 1)
}
