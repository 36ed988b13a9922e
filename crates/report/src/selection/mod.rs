//! The part of a profile that a report is about: a time range, threads, places in the source, and what
//! was alive at a moment.
//!
//! A [`Selection`] removes the other samples from the profile. So every report and every export
//! takes it, and the figures and intervals of the rest are computed as always. The moment ([`At`]) is resolved on the
//! whole profile first: the peak is the program's, not the peak of the selected part of it.

mod alive;
mod ends;
mod labels;
mod place;
mod resident;
mod work;

use nthbyte_profile::event::{LabelSetId, Memory, Nanos, ThreadId};
use nthbyte_profile::model::ProcessId;
use nthbyte_profile::{Domain, HOST, Profile};
use serde::Serialize;

pub use alive::Moment;
pub(crate) use alive::{Alive, Lives, lifetimes_are_known, peak_of_all};
pub use labels::LabelQuery;
pub(crate) use labels::selected as selected_labels;
pub(crate) use place::module_path;
pub(crate) use resident::{Reading, peak_of_rss};

use crate::text;
use work::Work;

/// Which samples a report is about. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The only domain of memory; `None` for all. The peak is this domain's.
    pub domain: Option<Domain>,
    /// Allocated at this time or later. So are time samples, collections and memory totals.
    pub since: Option<Nanos>,
    /// Allocated before this time.
    pub until: Option<Nanos>,
    /// Allocated by one of these threads: the name, its beginning with `*` after it, or the
    /// system's number. Empty: by any thread.
    pub threads: Vec<String>,
    /// Allocated by one of these files or modules, or by what it called. Empty: by any.
    pub places: Vec<String>,
    /// Allocated while the thread had these labels: of each key that is named, one of its values. Empty: with any labels.
    pub labels: Vec<LabelQuery>,
    /// Freed before the process had allocated this many more bytes.
    pub temporary: Option<u64>,
    /// Alive at this moment.
    pub at: Option<At>,
}

/// A moment in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The end of each process.
    End,
    /// When the estimate of the live memory was largest, within the selected time. One half of the samples finds the moment,
    /// the other one says what was alive then: see [`nthbyte_profile::Halves`].
    Peak,
    /// A time.
    Time(Nanos),
}

/// Why a selection cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The end of the time range is not after its start.
    #[error(
        "--until {until} is not after --since {since}: nothing is between them; give a later --until"
    )]
    EmptyRange {
        /// The start.
        since: String,
        /// The end.
        until: String,
    },
    /// Nothing is before the start.
    #[error("--until 0 leaves nothing: give a later time")]
    NothingBefore,
    /// The moment is before the time range.
    #[error(
        "--at {at} is before --since {since}: nothing of that range is allocated yet; give a later --at"
    )]
    MomentBeforeRange {
        /// The moment.
        at: String,
        /// The start of the range.
        since: String,
    },
    /// A time after the end.
    #[error(
        "{option} {time} is after the end of the profile, which is {end} long: give an earlier time"
    )]
    AfterTheEnd {
        /// The option that has it.
        option: &'static str,
        /// The time.
        time: String,
        /// When the profile ends.
        end: String,
    },
    /// No thread has the name.
    #[error("no thread has the name {name}; there are: {known}")]
    NoThread {
        /// What was asked for.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// No frame is in the file or module.
    #[error(
        "no frame of the profile is in {0}: write a module's name, or a file's as `nthbyte summary --by file` shows it"
    )]
    NoPlace(String),
    /// No sample has the label.
    #[error("no sample has the label {label}: {known}")]
    NoLabel {
        /// What was asked for.
        label: String,
        /// What there is.
        known: String,
    },
    /// The ends of objects are not recorded.
    #[error(
        "what was alive at a moment is not known: PyPy's profiles do not say when an object that survived is freed"
    )]
    NoLifetimes,
    /// There is no allocation in the time range.
    #[error("no allocation sample is in this time: there is no peak")]
    NoPeak,
}

/// The selection as it was made: in docs/summary-json.md, member `selection`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Selected {
    #[serde(skip_serializing_if = "Option::is_none")]
    since_nanos: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_nanos: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<String>,
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary_bytes: Option<u64>,
    /// `end`, `peak` or `time`.
    at: &'static str,
    /// Missing for the end: each process has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_nanos: Option<u64>,
    /// The same.
    #[serde(skip)]
    moment: Moment,
    /// The conditions in words.
    #[serde(skip)]
    conditions: Option<String>,
}

impl Selection {
    /// Removes all samples except the selected ones, and returns what was selected. Its description becomes a note of the
    /// profile, which every export has.
    ///
    /// # Errors
    /// If something that was named does not exist, or if a moment is asked for and the ends of
    /// objects are not recorded.
    pub fn apply(&self, profile: &mut Profile) -> Result<Selected, SelectionError> {
        let selected = self.narrow(profile)?;
        let is_exact = profile.is_exact();
        if self.at.is_some() {
            let moment = selected.moment();
            if moment.is_found() {
                profile.keep_second_half();
            }
            let lives = Lives::of(profile);
            profile.retain_samples(|sample| lives.is_alive(sample, moment));
        }
        if self.is_about_objects() {
            profile.cpu.clear();
        }
        let moment = self.at.map(|at| {
            let by = match at {
                At::Peak if !is_exact => {
                    ", by the half of the samples that did not find this moment"
                }
                _ => "",
            };
            format!("alive {}{by}", selected.when())
        });
        if let Some(text) = self.describe(moment) {
            profile.meta.notes.push(text);
        }
        Ok(selected)
    }

    /// Removes all samples except the selected ones, but for the condition [`at`](Self::at): for a
    /// report that shows what was alive at that moment beside what was allocated.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn narrow(&self, profile: &mut Profile) -> Result<Selected, SelectionError> {
        Ok(self.narrow_and(profile, |_| ())?.0)
    }

    /// The same; and when most was alive, as for [`At::Peak`], whatever moment is selected. `None` if that is not known.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn narrow_with_peak(
        &self,
        profile: &mut Profile,
    ) -> Result<(Selected, Option<Nanos>), SelectionError> {
        let (selected, peak) = self.narrow_and(profile, |profile| {
            let is_asked = self.at == Some(At::Peak);
            let is_known = !is_asked && lifetimes_are_known(profile);
            is_known.then(|| self.peak(profile)).flatten()
        })?;
        let peak = match self.at {
            Some(At::Peak) => selected.moment().time(),
            _ => peak,
        };
        Ok((selected, peak))
    }

    /// Narrows a profile. `before` sees it with its samples of other threads, places and times.
    fn narrow_and<T>(
        &self,
        profile: &mut Profile,
        before: impl FnOnce(&Profile) -> T,
    ) -> Result<(Selected, T), SelectionError> {
        self.check_times(profile)?;
        profile.keep_domain(self.domain);
        if self.at.is_some() && !lifetimes_are_known(profile) {
            return Err(SelectionError::NoLifetimes);
        }
        let threads = self.threads(profile)?;
        let stacks = self.stacks(profile)?;
        if self.labels.iter().any(|label| label.key == HOST) {
            profile.label_by_host();
        }
        let labels = self.label_sets(profile)?;
        let selected = self.selected(profile)?;
        let seen = before(profile);
        let work = self.temporary.map(|most| (most, Work::of(profile)));
        let (since, until) = self.range();
        let in_time = |time: Nanos| since <= time && time < until;
        let by_thread = |thread: ThreadId| {
            let threads = threads.as_ref();
            threads.is_none_or(|threads| threads.get(thread.index()).is_some_and(|&is| is))
        };
        let in_labels = |set: LabelSetId| labels.as_ref().is_none_or(|sets| sets[set.index()]);
        let in_place = |stack: usize| stacks.as_ref().is_none_or(|stacks| stacks[stack]);
        let is_narrowed = threads.is_some() || stacks.is_some() || labels.is_some();
        if is_narrowed || work.is_some() || self.has_range() {
            // What was counted belongs to all threads, places and times.
            profile.forget_counts();
            // The clock of work needs the profile's tables, which samples are removed from.
            let processes = profile.thread_processes.clone();
            profile.retain_samples(|sample| {
                let process = processes.get(sample.thread.index()).copied();
                in_time(sample.time)
                    && by_thread(sample.thread)
                    && in_place(sample.stack.index())
                    && in_labels(sample.labels)
                    && work.as_ref().is_none_or(|(most, work)| {
                        work.until_freed(process.unwrap_or(ProcessId::FIRST), sample)
                            .is_some_and(|bytes| bytes <= *most as f64)
                    })
            });
            profile.cpu.retain(|sample| {
                in_time(sample.time)
                    && by_thread(sample.thread)
                    && in_place(sample.stack.index())
                    && in_labels(sample.labels)
            });
        }
        if self.has_range() {
            profile.collections.retain(|of| in_time(of.start));
            let processes = profile.processes.iter_mut();
            let memories = processes.map(|process| &mut process.memory);
            for memory in memories.chain([&mut profile.memory]) {
                keep_readings(memory, since, in_time);
            }
        }
        Ok((selected, seen))
    }

    /// Whether it leaves out nothing of its domain.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let whole = Self {
            domain: self.domain,
            ..Self::default()
        };
        *self == whole
    }

    /// Whether it has a condition that time samples cannot have.
    #[must_use]
    pub fn is_about_objects(&self) -> bool {
        self.at.is_some() || self.temporary.is_some()
    }

    fn has_range(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    fn range(&self) -> (Nanos, Nanos) {
        let until = self.until.unwrap_or(Nanos(u64::MAX));
        (self.since.unwrap_or(Nanos(0)), until)
    }

    fn check_times(&self, profile: &Profile) -> Result<(), SelectionError> {
        let show = |time: Nanos| text::duration(time.0);
        let (since, until) = self.range();
        if until == Nanos(0) {
            return Err(SelectionError::NothingBefore);
        }
        if until <= since {
            let (since, until) = (show(since), show(until));
            return Err(SelectionError::EmptyRange { since, until });
        }
        let at = match self.at {
            Some(At::Time(time)) => Some(time),
            _ => None,
        };
        for (option, time) in [("--since", self.since), ("--at", at)] {
            if let Some(time) = time.filter(|&time| time > profile.end) {
                let (time, end) = (show(time), show(profile.end));
                return Err(SelectionError::AfterTheEnd { option, time, end });
            }
        }
        if let Some(at) = at.filter(|&at| at < since) {
            let (at, since) = (show(at), show(since));
            return Err(SelectionError::MomentBeforeRange { at, since });
        }
        Ok(())
    }

    /// Whether each thread is selected; `None` if all are.
    fn threads(&self, profile: &Profile) -> Result<Option<Vec<bool>>, SelectionError> {
        if self.threads.is_empty() {
            return Ok(None);
        }
        let mut selected = vec![false; profile.threads.len()];
        for name in &self.threads {
            let mut found = false;
            for (is_selected, thread) in selected.iter_mut().zip(&profile.threads) {
                let matches = match name.strip_suffix('*') {
                    Some(start) => thread.name.starts_with(start),
                    None => thread.name == *name || thread.os_id.to_string() == *name,
                };
                *is_selected |= matches;
                found |= matches;
            }
            if !found {
                let name = text::fit(name, 100, text::Cut::End);
                let known = names_of(profile);
                return Err(SelectionError::NoThread { name, known });
            }
        }
        Ok(Some(selected))
    }

    /// Whether each label set is selected; `None` if all are.
    pub(crate) fn label_sets(
        &self,
        profile: &Profile,
    ) -> Result<Option<Vec<bool>>, SelectionError> {
        if self.labels.is_empty() {
            return Ok(None);
        }
        match labels::selected(profile, &self.labels) {
            (selected, None) => Ok(Some(selected)),
            (_, Some(label)) => Err(SelectionError::NoLabel {
                label: text::fit(&label.text(), 100, text::Cut::End),
                known: labels::known(profile, label),
            }),
        }
    }

    /// Whether each stack has a frame in one of the places; `None` if all stacks are selected.
    fn stacks(&self, profile: &Profile) -> Result<Option<Vec<bool>>, SelectionError> {
        if self.places.is_empty() {
            return Ok(None);
        }
        let mut functions = vec![false; profile.functions.len()];
        for named in &self.places {
            let mut found = false;
            for (is_selected, function) in functions.iter_mut().zip(&profile.functions) {
                if place::is_in(&function.file, named) {
                    (*is_selected, found) = (true, true);
                }
            }
            if !found {
                let named = text::fit(named, 200, text::Cut::Start);
                return Err(SelectionError::NoPlace(named));
            }
        }
        let mut stacks = vec![false; profile.stacks.len()];
        // Parents come before their children.
        for (at, node) in profile.stacks.iter().enumerate().skip(1) {
            let function = profile.frames[node.frame as usize].function;
            stacks[at] = stacks[node.parent.index()] || functions[function as usize];
        }
        Ok(Some(stacks))
    }

    fn selected(&self, profile: &Profile) -> Result<Selected, SelectionError> {
        let (at, moment) = match self.at.unwrap_or(At::End) {
            At::End => ("end", Moment::End),
            At::Time(time) => ("time", Moment::Time(time)),
            At::Peak => {
                let peak = self.peak(profile).ok_or(SelectionError::NoPeak)?;
                ("peak", Moment::Found(peak))
            }
        };
        Ok(Selected {
            since_nanos: self.since.map(|time| time.0),
            until_nanos: self.until.map(|time| time.0),
            threads: self.threads.clone(),
            places: self.places.clone(),
            labels: self.labels.iter().map(LabelQuery::text).collect(),
            temporary_bytes: self.temporary,
            at,
            at_nanos: moment.time().map(|time| time.0),
            moment,
            conditions: self.describe(None),
        })
    }

    /// The moment of the selected time at which the live memory of all threads and places is largest, by the first half of
    /// the samples; `None` if there is no allocation before its end.
    fn peak(&self, profile: &Profile) -> Option<Nanos> {
        let (since, until) = self.range();
        let last = Nanos(until.0.checked_sub(1)?);
        alive::most_alive(profile, [since..=last])
    }

    /// The conditions as one sentence; `None` if there are none.
    fn describe(&self, moment: Option<String>) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        let show = |time: Nanos| text::duration(time.0);
        match (self.since, self.until) {
            (Some(since), Some(until)) => {
                parts.push(format!("from {} to {}", show(since), show(until)));
            }
            (Some(since), None) => parts.push(format!("from {} on", show(since))),
            (None, Some(until)) => parts.push(format!("until {}", show(until))),
            (None, None) => {}
        }
        if !self.threads.is_empty() {
            parts.push(format!("by thread {}", self.threads.join(" or ")));
        }
        if !self.places.is_empty() {
            parts.push(format!("in {}, or below it", self.places.join(" or ")));
        }
        if !self.labels.is_empty() {
            let labels: Vec<String> = self.labels.iter().map(LabelQuery::text).collect();
            parts.push(format!("with the label {}", labels.join(", ")));
        }
        let allocated = if parts.is_empty() { "" } else { "allocated " };
        if let Some(bytes) = self.temporary {
            let bytes = text::bytes(bytes as f64);
            parts.push(format!("freed within {bytes} of further allocation"));
        }
        parts.extend(moment);
        (!parts.is_empty()).then(|| format!("only what was {allocated}{}", parts.join("; ")))
    }
}

impl Selected {
    /// The moment for which a report says what was alive.
    #[must_use]
    pub const fn moment(&self) -> Moment {
        self.moment
    }

    /// Whether it is the whole profile, at any moment.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.conditions.is_none()
    }

    /// Whether its moment is the end.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_nanos.is_none()
    }

    /// The conditions in words, without the moment; `None` if there are none.
    #[must_use]
    pub fn conditions(&self) -> Option<&str> {
        self.conditions.as_deref()
    }

    /// The moment in words: `at the end`, `at the peak, 12.3 s`, `at 12.3 s`.
    #[must_use]
    pub fn when(&self) -> String {
        let time = text::duration(self.at_nanos.unwrap_or(0));
        match self.at {
            "peak" => format!("at the peak, {time}"),
            "time" => format!("at {time}"),
            _ => "at the end".to_owned(),
        }
    }

    /// The whole profile at its end.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            at: "end",
            ..Self::default()
        }
    }
}

/// Keeps the readings of a time range. A peak from before it is not one of the range: the kernel's is of the whole time
/// until the reading.
fn keep_readings(memory: &mut Vec<Memory>, since: Nanos, in_time: impl Fn(Nanos) -> bool) {
    let before = memory.iter().filter(|of| of.time < since);
    let passed = before.filter_map(|of| of.peak_rss).max();
    memory.retain(|of| in_time(of.time));
    for of in memory {
        of.peak_rss = of.peak_rss.filter(|&peak| Some(peak) > passed);
    }
}

/// The names of the threads, for a message.
fn names_of(profile: &Profile) -> String {
    let mut names: Vec<String> = Vec::new();
    for thread in &profile.threads {
        let name = match thread.name.as_str() {
            "" => thread.os_id.to_string(),
            name => text::fit(name, 40, text::Cut::End),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return "none".to_owned();
    }
    let more = names.len().saturating_sub(10);
    names.truncate(10);
    let mut text = names.join(", ");
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text
}
