//! `nthbyte explain`: the answers to the questions that people have of a profile, in sentences, the most important first.
//!
//! Each question is a file, and gives at most a few [`Answer`]s with a [`Weight`](weight):
//!
//! | file | question |
//! |---|---|
//! | [`state`] | is the profile whole, and are there more processes? |
//! | [`killed`] | why was the process killed? |
//! | [`growth`] | what grows? The verdicts come from [`crate::leaks`] |
//! | [`churn`] | who allocates, how much of it dies young, and in which process? |
//! | [`labels`] | for whom is it: which value of a label? |
//! | [`collector`] | how long does the collector take, and what feeds it? |
//! | [`compiler`] | how long does PyPy's JIT compiler take? |
//! | [`peak`] | what was alive when most was? |
//! | [`rss`] | what was the resident set made of? |
//! | [`running`] | what takes the time? |
//! | [`period`] | was the period too coarse for such questions? |
//!
//! A sentence states figures with their intervals. That one place has more than another is said only if their intervals do
//! not overlap.

mod churn;
mod collector;
mod compiler;
mod growth;
mod killed;
mod labels;
mod peak;
mod period;
mod places;
mod render;
mod rss;
mod running;
mod state;

use std::collections::BTreeMap;
use std::ops::Range;

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::estimate::Estimate;
use crate::leaks::{LeakPlace, Leaks, name};
use crate::parallel::both;
use crate::periods;
use crate::selection::{Moment, peak_of_all};
use crate::text;
pub use killed::{GrownMemory, Killed};
use places::{Places, Ranked};
pub use render::Style;
pub use rss::Resident;

/// The version of the JSON form. It changes only if a member is removed, or changes its meaning.
pub const VERSION: u32 = 1;

/// The lines that are named after the first one, at most.
const NEXT: usize = 2;
/// And only those with this share of the whole.
const WORTH_NAMING: f64 = 0.02;

/// The question, as the user named it.
#[derive(Clone, Debug, Default)]
pub struct ExplainOptions {
    /// The profiles, and `--all`, `--alone` and `--domain` if they were given: what a command that shows more is followed by.
    pub words: Vec<String>,
    /// Profiles of processes of the same program that are not read.
    pub more_processes: usize,
    /// The program is known to repeat its work, whatever the profile shows of that: [`Leaks::of`](crate::Leaks::of).
    pub repeated: bool,
}

/// The answers. docs/explain.md describes the JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// [`VERSION`].
    pub version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Interpreter and version.
    pub interpreter: String,
    /// The labels of the process, each as `service=web`; of several, those that all of them have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Number of processes.
    pub processes: usize,
    /// Length of the session, in nanoseconds.
    pub duration_nanos: u64,
    /// Number of allocation samples.
    pub samples: u64,
    /// Mean distance between samples, in bytes; if it changed, the one that would give the same intervals.
    pub period: u64,
    /// Whether every allocation was recorded, so that the figures are exact.
    pub exact: bool,
    /// Bytes allocated in total, estimated from the samples.
    pub bytes: Estimate,
    /// Bytes allocated in total: by the agent's count if it is complete (see [`Profile::allocated`]), else the estimate.
    pub bytes_allocated: u64,
    /// Whether `bytes_allocated` comes from the agent's count.
    pub bytes_counted: bool,
    /// The answers, the most important first.
    pub answers: Vec<Answer>,
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// What it is about.
    pub topic: Topic,
    /// Sentences, the most important first.
    pub sentences: Vec<String>,
    /// The places that the sentences name, in their order.
    pub places: Vec<LeakPlace>,
    /// The figures of the sentences, by name.
    pub figures: BTreeMap<&'static str, Estimate>,
    /// The command that shows more, word by word; empty if there is no more.
    pub more: Vec<String>,
    /// Where the profiles are in `more`.
    #[serde(skip)]
    profiles: Range<usize>,
    #[serde(skip)]
    weight: u32,
}

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// The process was killed, probably for memory.
    Killed,
    /// The profile is not whole.
    Incomplete,
    /// There are profiles of more processes.
    Family,
    /// Whether the period is small enough.
    Period,
    /// Something leaks.
    Leak,
    /// Something may leak.
    MayLeak,
    /// Nothing is known to leak.
    NoLeak,
    /// Who allocates, and what of it dies young.
    Churn,
    /// Which value of a label pays.
    Labels,
    /// Which process allocates.
    Processes,
    /// The collector's time, and what feeds it.
    Collector,
    /// The JIT compiler's time.
    Compiler,
    /// What was alive at the peak.
    Peak,
    /// What the resident set was made of.
    Rss,
    /// What takes the time.
    Time,
}

impl Topic {
    /// The word before the answer on a terminal.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Killed => "Killed",
            Self::Incomplete | Self::Family | Self::Period => "Profile",
            Self::Leak | Self::MayLeak | Self::NoLeak => "Leak",
            Self::Churn => "Churn",
            Self::Labels => "Labels",
            Self::Processes => "Processes",
            Self::Collector => "Collector",
            Self::Compiler => "Compiler",
            Self::Peak => "Peak",
            Self::Rss => "RSS",
            Self::Time => "Time",
        }
    }
}

/// The order of answers: the largest first.
mod weight {
    pub(super) const KILLED: u32 = 110;
    pub(super) const STATE: u32 = 100;
    pub(super) const NO_SAMPLES: u32 = 90;
    pub(super) const LEAK: u32 = 80;
    pub(super) const RSS_IS_FREE: u32 = 75;
    pub(super) const COLLECTOR_IS_LARGE: u32 = 70;
    pub(super) const COMPILER_IS_LARGE: u32 = 68;
    pub(super) const PEAK_IS_LARGE: u32 = 65;
    pub(super) const CHURN: u32 = 60;
    pub(super) const LABELS: u32 = 55;
    pub(super) const PEAK: u32 = 50;
    pub(super) const TIME: u32 = 45;
    pub(super) const RSS: u32 = 40;
    pub(super) const PROCESSES: u32 = 35;
    pub(super) const COLLECTOR: u32 = 30;
    pub(super) const COMPILER: u32 = 28;
    pub(super) const MAY_LEAK: u32 = 25;
    pub(super) const NO_LEAK: u32 = 20;
    pub(super) const COARSE: u32 = 15;
    pub(super) const FINE: u32 = 5;
}

/// The profile, and what several questions need of it.
struct Facts<'a> {
    profile: &'a Profile,
    asked: &'a ExplainOptions,
    aggregate: Aggregate,
    /// Bytes allocated, as estimated.
    estimate: f64,
    places: Places<'a>,
    exact: bool,
    /// The period of the allocation samples; if it changed, the one that would give the same intervals.
    period: u64,
    /// Bytes allocated, as counted or estimated.
    allocated: f64,
    counted: bool,
    /// When most was alive; `None` if that is not known.
    peak: Option<Nanos>,
}

impl Explanation {
    /// Answers all questions of a whole profile.
    #[must_use]
    pub fn of(profile: &Profile, asked: &ExplainOptions) -> Self {
        Self::answering(profile, asked, || Resident::of(profile))
    }

    /// The same of a part, with what the resident set was made of: of the whole profile, before samples were removed.
    #[must_use]
    pub fn of_part(profile: &Profile, asked: &ExplainOptions, whole: Resident) -> Self {
        Self::answering(profile, asked, || whole)
    }

    fn answering(
        profile: &Profile,
        asked: &ExplainOptions,
        resident: impl FnOnce() -> Resident + Send,
    ) -> Self {
        let leaks = || Leaks::of_one("", profile, asked.repeated);
        let facts = || both(resident, || Facts::of(profile, asked));
        let (leaks, (resident, facts)) = both(leaks, facts);
        let bytes = facts.aggregate.estimator.bytes(&facts.aggregate.all.all);
        let mut answers = Vec::new();
        let killed = Killed::of(profile);
        answers.extend(state::killed(&facts, killed.as_ref()));
        answers.extend(state::incomplete(&facts, killed.as_ref()));
        answers.extend(state::family(&facts));
        answers.extend(growth::answers(&facts, &leaks));
        answers.extend(churn::answer(&facts));
        answers.extend(labels::answer(&facts));
        answers.extend(collector::answer(&facts));
        answers.extend(compiler::answer(&facts));
        answers.extend(peak::answer(&facts));
        answers.extend(rss::answer(&facts, &resident));
        answers.extend(running::answer(&facts));
        answers.extend(churn::processes(&facts));
        answers.extend(period::answer(&facts));
        // The sort is stable: of equal weight, the first stays first.
        answers.sort_by_key(|answer| std::cmp::Reverse(answer.weight));
        Self {
            version: VERSION,
            command: profile.meta.command.clone(),
            interpreter: profile.meta.interpreter.clone(),
            tags: profile.common_tags(),
            processes: profile.processes.len(),
            duration_nanos: profile.end.0,
            samples: profile.samples.len() as u64,
            period: facts.period,
            exact: facts.exact,
            bytes,
            bytes_allocated: facts.allocated as u64,
            bytes_counted: facts.counted,
            answers,
        }
    }
}

/// Bytes with their interval: `94.4 MiB (80.9–110)`, or without one if there is none.
fn of_bytes(bytes: &Estimate) -> String {
    let shown = text::bytes(bytes.estimate);
    if bytes.low >= bytes.high {
        return shown;
    }
    let range = text::range(bytes.low, bytes.estimate, bytes.high);
    format!("{shown} ({range})")
}

impl<'a> Facts<'a> {
    fn of(profile: &'a Profile, asked: &'a ExplainOptions) -> Self {
        let aggregate = Aggregate::of_stacks(profile, Moment::End);
        let estimate = aggregate.all.all.bytes.estimate;
        Self {
            profile,
            asked,
            places: Places::of(profile),
            exact: profile.is_exact(),
            period: periods::effective(profile) as u64,
            allocated: profile.allocated.map_or(estimate, |bytes| bytes as f64),
            counted: profile.allocated.is_some(),
            aggregate,
            estimate,
            peak: peak_of_all(profile),
        }
    }

    /// So many nanoseconds, as a part of the time that the processes ran.
    fn part_of_time(&self, nanos: u64) -> f64 {
        let processes = self.profile.processes.iter();
        let ran = match self.profile.processes.len() {
            0 | 1 => self.profile.end.0,
            _ => processes
                .map(|process| process.duration().0)
                .fold(0, u64::saturating_add),
        };
        (nanos as f64 / ran.max(1) as f64).min(1.0)
    }

    /// An answer whose command is `nthbyte`, these words and the profile.
    fn answer(&self, topic: Topic, weight: u32, command: &[&str]) -> Answer {
        let mut more = vec!["nthbyte".to_owned(), command[0].to_owned()];
        more.extend(self.asked.words.iter().cloned());
        let profiles = 2..more.len();
        more.extend(command[1..].iter().map(|&word| word.to_owned()));
        Answer {
            topic,
            sentences: Vec::new(),
            places: Vec::new(),
            figures: BTreeMap::new(),
            more,
            profiles,
            weight,
        }
    }

    /// `559k (433k–710k)`.
    fn count(&self, count: &Estimate) -> String {
        let shown = text::count(count.estimate);
        if count.low >= count.high {
            return shown;
        }
        let (low, high) = (text::count(count.low), text::count(count.high));
        format!("{shown} ({low}–{high})")
    }

    /// Bytes as a part of all that was allocated: `18 %`.
    fn share(&self, bytes: f64) -> String {
        text::percent((bytes / self.estimate.max(1.0)).min(1.0))
    }
}

impl Answer {
    fn say(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    /// Names the next lines, those that are worth it. `whole`: what all of them sum up to.
    fn say_next(
        &mut self,
        facts: &Facts<'_>,
        lines: &[Ranked],
        whole: f64,
        show: impl Fn(&Estimate) -> String,
    ) {
        let next = lines.iter().skip(1).take(NEXT);
        let next = next.filter(|one| one.figure.estimate >= WORTH_NAMING * whole);
        let next = next.map(|one| {
            let place = facts.places.place(one.key);
            format!("{} {}", name(&place), show(&one.figure))
        });
        let next: Vec<String> = next.collect();
        if !next.is_empty() {
            self.say(format!("Next: {}.", next.join("; ")));
        }
    }

    fn figure(&mut self, name: &'static str, figure: Estimate) {
        self.figures.insert(name, figure);
    }
}
