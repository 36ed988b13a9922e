//! Finds memory that accumulates: a verdict for each allocation site, with its evidence.
//!
//! [`Leaks::of`] does this, a file a step:
//!
//! 1. [`clock`]: every moment gets a position in time and in work.
//! 2. [`sites`]: samples are grouped by line, function, type and caller.
//! 3. [`growth`]: the live bytes of each site over the run, and tests on them.
//! 4. [`crate::statistics::discovery`]: the tests are adjusted for their number.
//! 5. [`verdict`]: a leak is distinguished from a cache that fills, start-up, and a burst.
//! 6. [`figures`]: sites that are one leak become one of the [`findings`], with figures; [`survival`] gives the
//!    share that lives on.
//! 7. [`rounds`]: growth is a leak only if the program repeats its work.
//!
//! [`containers`] follows the size of blocks that are reallocated, [`reuse`] finds blocks that changed hands without a free,
//! [`bound`] says how small a leak may have gone unnoticed, and [`together`] tells what several processes leak once.
//! [`held`] says who holds what grows. [`heap`] is what can be said on PyPy. docs/leaks.md explains all of it in words.

mod analysis;
mod bound;
mod clock;
mod containers;
mod figures;
mod findings;
mod growth;
mod heap;
mod held;
mod parts;
mod render;
mod reuse;
mod rounds;
mod sentences;
mod sites;
mod survival;
mod together;
mod verdict;

use findings::Named;
pub use findings::{Container, Finding, LeakPlace, LeakShare, Retainer, Share};
pub use heap::WholeHeap;
use parts::lost;
pub(crate) use render::name;
pub use rounds::{MINUTE_FROM, Repeats, SHORTEST};
pub(crate) use sites::Frames;
pub use survival::SurvivalPoint;
pub use together::Together;
use verdict::RATE;
pub use verdict::{SMALLEST, Verdict};

use std::borrow::Cow;

use nthbyte_profile::meta::Method;
use nthbyte_profile::{Lifetimes, Profile, Source};
use serde::Serialize;

use crate::estimate::Estimate;
use crate::periods;
use crate::statistics::discovery::{Test, adjust};
use crate::text;
use analysis::Analysis;
use rounds::Rounds;

/// Memory that accumulates in one or several processes. docs/leaks.md describes the JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Leaks {
    /// Whether anything leaks: there is a finding, or a heap that grows.
    pub leaks: bool,
    /// The part of the findings that is expected to be wrong by chance.
    pub false_discovery_rate: f64,
    /// How many tests the adjustment counts.
    pub tests: usize,
    /// Each leak once, largest first: with the processes in which it was found.
    pub findings: Vec<Together>,
    /// What was found, by profile.
    pub profiles: Vec<Report>,
}

/// Memory that accumulates in one process.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file.
    pub profile: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Interpreter and version.
    pub interpreter: String,
    /// Process number.
    pub pid: u32,
    /// How long the session took, in nanoseconds.
    pub duration_nanos: u64,
    /// Mean distance between samples, in bytes; the longest if there were several.
    pub period: u64,
    /// Whether every allocation was recorded, so that figures are exact.
    pub exact: bool,
    /// Number of allocation samples.
    pub samples: u64,
    /// Estimated bytes alive at the end; on PyPy, bytes of objects that became old.
    pub live: Estimate,
    /// Whether the program is seen to repeat its work: only then something is called a leak.
    pub repeats: Repeats,
    /// The part of the time after start-up in which the program waited for something else than a processor; `None` if that is not
    /// recorded.
    pub waited: Option<f64>,
    /// Leaks, largest first.
    pub findings: Vec<Finding>,
    /// What grew without being called a leak: possible leaks that need more data, and what may be a result that is being built.
    pub undecided: Vec<Finding>,
    /// Other sites that hold memory, and the reason why they are not leaks; largest first.
    pub others: Vec<Retainer>,
    /// The number of further sites that are not in `others`.
    pub others_left_out: usize,
    /// The largest growth that may have gone unnoticed, in bytes over the run without its start-up.
    pub unnoticed: f64,
    /// The same in bytes a minute; `None` if the run is too short to say so.
    pub unnoticed_per_minute: Option<f64>,
    /// The whole heap, if lifetimes are not recorded (PyPy); else `null`.
    pub heap: Option<WholeHeap>,
    /// Facts that this profile cannot show, a sentence each.
    pub limits: Vec<String>,
}

/// How many sites of `others` are kept.
const OTHERS: usize = 8;

impl Leaks {
    /// Judges all sites of some profiles, each with its file's name. Each process is judged by itself, also where a
    /// profile has several. False discoveries are controlled over all of them together. `repeated`: the program is
    /// known to repeat its work, whatever the profile shows of that.
    #[must_use]
    pub fn of(profiles: &[(String, Profile)], repeated: bool) -> Self {
        let profiles = profiles.iter().map(|(name, profile)| (&name[..], profile));
        Self::of_processes(profiles, repeated)
    }

    /// The same for one profile, of one process or several.
    #[must_use]
    pub fn of_one(name: &str, profile: &Profile, repeated: bool) -> Self {
        Self::of_processes([(name, profile)].into_iter(), repeated)
    }

    fn of_processes<'a>(
        profiles: impl Iterator<Item = (&'a str, &'a Profile)>,
        repeated: bool,
    ) -> Self {
        let mut processes: Vec<(&str, Cow<'_, Profile>)> = Vec::new();
        for (name, profile) in profiles {
            if profile.processes.len() > 1 {
                let parts = parts::of(profile).into_iter();
                processes.extend(parts.map(|part| (name, Cow::Owned(part))));
            } else {
                processes.push((name, Cow::Borrowed(profile)));
            }
        }
        let analyses: Vec<Analysis<'_>> = processes
            .iter()
            .map(|(_, profile)| Analysis::of(profile))
            .collect();
        let tests: Vec<Test> = analyses.iter().flat_map(Analysis::tests).collect();
        let (adjusted, counted) = adjust(&tests, RATE);
        let mut adjusted = adjusted.into_iter();
        let reports: Vec<Report> = processes
            .iter()
            .zip(analyses)
            .map(|((name, profile), analysis)| {
                let rates = adjusted.by_ref().take(analysis.candidates.len()).collect();
                let rounds = Rounds::of(profile, repeated);
                Report::of(name, profile, &analysis, rates, counted, rounds)
            })
            .collect();
        Self {
            leaks: reports.iter().any(Report::leaks),
            false_discovery_rate: RATE,
            tests: counted,
            findings: together::of(&reports),
            profiles: reports,
        }
    }
}

impl Report {
    /// Whether there is a leak.
    #[must_use]
    pub fn leaks(&self) -> bool {
        !self.findings.is_empty()
            || self.repeats == Repeats::Rounds
                && self
                    .heap
                    .as_ref()
                    .is_some_and(|heap| heap.grows == Some(true))
    }

    fn of(
        name: &str,
        profile: &Profile,
        analysis: &Analysis<'_>,
        rates: Vec<f64>,
        tests: usize,
        mut rounds: Rounds,
    ) -> Self {
        let meta = &profile.meta;
        let judged = analysis.judge(&rates);
        let mut findings = analysis.findings(&judged, Verdict::Leak, tests);
        let unknown = if analysis.knows_frees {
            Verdict::NotEnoughData
        } else {
            Verdict::Suspect
        };
        let mut undecided = analysis.findings(&judged, unknown, tests);
        let heap = (!analysis.knows_frees).then(|| WholeHeap::of(profile));
        if heap.as_ref().is_some_and(|heap| heap.grows == Some(false)) {
            undecided.clear();
        }
        let named = Named::of(&findings);
        undecided.retain(|one| !named.has(&one.place));
        drop(named);
        let reused = reuse::separate(&mut findings, &mut undecided);
        // This many frees may be among the lost events.
        let (certain, unsure): (Vec<_>, Vec<_>) = findings
            .into_iter()
            .partition(|finding| finding.samples > lost(profile));
        let mut findings = certain;
        undecided.extend(unsure.into_iter().map(|mut finding| {
            finding.verdict = Verdict::NotEnoughData;
            finding
        }));
        undecided.extend(reused.into_iter().map(|mut finding| {
            finding.verdict = Verdict::Reused;
            finding
        }));
        if rounds.is_seen() {
            let (notable, small): (Vec<_>, Vec<_>) =
                findings.into_iter().partition(Finding::is_notable);
            findings = notable;
            undecided.extend(small.into_iter().map(Finding::after_a_longer_run));
        }
        analysis.hold(findings.iter_mut().chain(&mut undecided));
        if !rounds.said {
            let in_progress = analysis.in_progress(&mut findings);
            undecided.extend(in_progress);
        }
        let (others, others_left_out) = analysis.others(&judged, &findings, &undecided, OTHERS);
        let unnoticed = analysis.unnoticed(&judged, &findings);
        if rounds.is_seen() && analysis.collects(&findings) {
            rounds.repeats = Repeats::Collects;
        }
        if rounds.repeats != Repeats::Rounds {
            undecided
                .iter_mut()
                .for_each(|finding| finding.more_minutes = None);
            let grew = findings.drain(..).map(|finding| Finding {
                verdict: Verdict::Grew,
                ..finding
            });
            undecided.splice(0..0, grew);
        }
        // Growth is looked at after start-up.
        let nanos = profile.end.0 as f64 * 0.9;
        Self {
            profile: name.to_owned(),
            command: meta.command.clone(),
            interpreter: meta.interpreter.clone(),
            pid: meta.pid,
            duration_nanos: profile.end.0,
            period: periods::effective(profile) as u64,
            exact: profile.is_exact(),
            samples: profile.samples.len() as u64,
            live: analysis.live(),
            repeats: rounds.repeats,
            waited: rounds.waited,
            findings,
            undecided,
            others,
            others_left_out,
            unnoticed,
            unnoticed_per_minute: (nanos >= MINUTE_FROM as f64).then(|| unnoticed / (nanos / 60e9)),
            heap,
            limits: limits(profile),
        }
    }
}

/// The smallest number of samples for a clock.
const FEWEST_SAMPLES: usize = 100;

fn limits(profile: &Profile) -> Vec<String> {
    let mut limits: Vec<String> = profile.before().into_iter().collect();
    match profile.lifetimes() {
        Lifetimes::None if profile.meta.method() == Method::Imported.name() => {
            limits
                .push("an imported profile has no lifetimes, so no place can be judged".to_owned());
        }
        Lifetimes::None => {
            limits.push("this profile has no lifetimes, so no place can be judged".to_owned());
        }
        Lifetimes::FirstCollection => {
            let who = match profile.meta.interpreter.starts_with("RPython") {
                true => "the collector",
                false => "PyPy",
            };
            let mut limit = format!(
                "{who} does not say when an old object is freed, so it is not known which place leaks; those below \
                 allocate objects that survive, and some of these may be freed later"
            );
            if profile.sources.iter().any(Source::is_native) {
                limit.push_str("; of native memory it is known: --domain native");
            }
            limits.push(limit);
        }
        Lifetimes::All => {}
    }
    if profile.samples.len() < FEWEST_SAMPLES {
        let few = match profile.samples.len() {
            0 => "there is no sample".to_owned(),
            1 => "there is only 1 sample".to_owned(),
            few => format!("there are only {few} samples"),
        };
        limits.push(format!("{few}: run for longer, or with a smaller --every"));
    }
    let lost = lost(profile);
    if lost > 0 {
        limits.push(format!(
            "{}: freed objects may seem to be alive",
            text::lost(lost, "event")
        ));
    }
    if !profile.damage.is_empty() {
        limits.push(
            "part of the file could not be read: freed objects may seem to be alive".to_owned(),
        );
    }
    limits
}
