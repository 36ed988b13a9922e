//! Files that are parts of one session ([`crate::segment`]): read one after the other, they become one process of the profile.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Loader;
use super::files::Session;
use crate::event::{Nanos, SampleId, Thread, ThreadId};
use crate::meta::Meta;
use crate::model::Lifetime;
use crate::segment::{Carried, SessionPart, Sums};

/// Sums of one session that are kept, in bytes of their events: a limit of the memory of a reader.
const MOST_SUMS: usize = 16 << 20;

/// A session: run, process, start.
type Key = (Option<u64>, u32, u64);

#[derive(Clone, Default)]
pub(super) struct Parts {
    /// The session of the file, and which part of it the file has; `None` if it has all.
    of: Option<(Key, SessionPart)>,
    /// The samples of the session that were alive at the end of the files before, by their numbers in the session; `None` if a sample is not in the
    /// tables.
    alive: HashMap<u32, Option<SampleId>, RandomState>,
    /// The numbers, in the session, of the first samples of the file, and of the first one after them.
    numbers: Carried,
    /// The places of the file's first samples in the tables, as far as they were read.
    pub(super) carried: Vec<Option<SampleId>>,
    /// Whether the file has said which they are. The first part of a session carries none.
    has_said: bool,
    /// Whether this file, or one before it, has samples, and not only sums.
    has_samples: bool,
    has_sums: bool,
    sums_bytes: usize,
}

impl Parts {
    /// Whether the next sample of the file is a carried one.
    #[inline]
    pub(super) fn is_carrying(&self) -> bool {
        self.carried.len() < self.numbers.samples.len()
    }

    /// Some samples from `first` on are gone: says which are left.
    pub(super) fn renumber(&mut self, first: u32, kept: &[bool]) {
        if self.alive.is_empty() {
            return;
        }
        let mut count = first;
        let new: Vec<Option<u32>> = kept
            .iter()
            .map(|&is_kept| {
                let number = count;
                count += u32::from(is_kept);
                is_kept.then_some(number)
            })
            .collect();
        for here in self.alive.values_mut() {
            *here = here.and_then(|here| match here.0.checked_sub(first) {
                Some(after) => new.get(after as usize).copied()?.map(SampleId),
                None => Some(here),
            });
        }
    }
}

impl Parts {
    /// Samples before this one of the file were lost.
    pub(super) fn skip_to(&mut self, next: u32) {
        while self.is_carrying() && self.carried.len() < next as usize {
            self.carried.push(None);
        }
    }
}

impl Loader {
    /// Called at the start of a file. Returns whether it continues the session of the one before.
    pub(super) fn begin_part(&mut self, meta: &Meta) -> bool {
        let key = (meta.run, meta.pid, meta.started_unix_nanos);
        let before = self.parts.of.take();
        self.parts.of = meta.segment.map(|segment| (key, segment));
        let continued = match (before, meta.segment) {
            (Some((known, before)), Some(segment)) => {
                known == key && before.number < segment.number
            }
            _ => false,
        };
        if !continued {
            self.parts = Parts {
                of: self.parts.of,
                ..Parts::default()
            };
        }
        self.parts.numbers = Carried::default();
        self.parts.carried = Vec::new();
        self.parts.has_said = meta.segment.is_some_and(|segment| segment.number == 1);
        continued
    }

    /// Called when the file continues the session.
    pub(super) fn continue_session(&mut self) {
        let process = &mut self.profile.processes[self.first_process];
        self.session = Session::default();
        self.session.memory = std::mem::take(&mut process.memory);
        process.counted = None;
    }

    /// A thread of the session that an earlier file has defined.
    pub(super) fn thread_of_session(&self, thread: &Thread<'_>) -> Option<ThreadId> {
        self.parts.of?;
        let is_it = |number: &u32| {
            let id = ThreadId(*number);
            let known = &self.profile.threads[id.index()];
            self.profile.process_of(id) == self.process
                && (known.os_id, known.name.as_str()) == (thread.os_id, thread.name)
        };
        (0..self.profile.threads.len() as u32)
            .rev()
            .find(is_it)
            .map(ThreadId)
    }

    /// Reads which samples were carried into the file. The other samples of the files before have been freed.
    pub(super) fn carried(&mut self, bytes: &[u8]) -> Option<()> {
        let carried = Carried::parse(bytes)?;
        let (_, segment) = self.parts.of?;
        let known = &mut self.parts.numbers;
        let is_next = known.samples.last() < carried.samples.first() || carried.samples.is_empty();
        if self.next_sample > 0 || !is_next {
            return None;
        }
        known.next = carried.next;
        known.samples.extend(carried.samples);
        let since = self.at(Nanos(segment.since_nanos));
        if !self.parts.has_samples {
            self.parts.has_samples = true;
            let process = &mut self.profile.processes[self.first_process];
            process.kept_since = Some(since);
            let seconds = since.0.saturating_sub(process.start.0) / 1_000_000_000;
            process.meta.notes.push(format!(
                "what was recorded in the first {seconds} s of process {} was dropped (--keep), but for what was alive then",
                process.meta.pid
            ));
        }
        if carried.more > 0 {
            return Some(());
        }
        for (number, here) in &self.parts.alive {
            let is_alive = self.parts.numbers.samples.binary_search(number).is_ok();
            if let (false, Some(here)) = (is_alive, *here) {
                self.profile
                    .samples
                    .set_lifetime(here, Lifetime::Freed, Some(since));
            }
        }
        self.parts.has_said = true;
        Some(())
    }

    /// The next sample was carried: notes its place. Returns whether it is in the tables, and needs no other one.
    pub(super) fn is_known_carried(&mut self) -> bool {
        let parts = &mut self.parts;
        let number = parts.numbers.samples[parts.carried.len()];
        let known = parts.alive.get(&number).copied();
        let here = self.profile.samples.len() as u32;
        parts.carried.push(known.unwrap_or(Some(SampleId(here))));
        let is_known = known.is_some();
        let after = here + u32::from(!is_known);
        if is_known {
            self.next_sample = self.next_sample.saturating_add(1);
        }
        if !parts.is_carrying() {
            let count = parts.carried.len() as u32;
            self.sample_runs = vec![(count, after)];
            // Not young: they were alive when the file began.
            self.youth = self.youth.max(after);
        }
        is_known
    }

    /// Reads what was allocated in a part of the session.
    pub(super) fn sums(&mut self, bytes: &[u8]) -> Option<()> {
        self.parts.sums_bytes += bytes.len();
        if self.parts.sums_bytes > MOST_SUMS {
            return None;
        }
        let mut sums = Sums::parse(bytes)?;
        self.parts.has_sums = true;
        sums.since = self.at(sums.since);
        sums.until = self.saw(sums.until);
        self.profile.processes[self.first_process].sums.push(sums);
        Some(())
    }

    /// Called at the end of a file: which samples the next one may carry.
    pub(super) fn end_part(&mut self) {
        if self.parts.of.is_none() {
            return;
        }
        self.parts.has_samples |= !std::mem::take(&mut self.parts.has_sums);
        let Carried { next, samples, .. } = std::mem::take(&mut self.parts.numbers);
        let carried = std::mem::take(&mut self.parts.carried);
        let first = carried.len() as u32;
        let mut alive: HashMap<u32, Option<SampleId>, RandomState> = HashMap::default();
        let mut add = |number: u32, here: Option<SampleId>| {
            let lives = |here: SampleId| self.profile.samples.lifetime(here) == Lifetime::StillLive;
            if here.is_none_or(lives) {
                alive.insert(number, here);
            }
        };
        for (&number, &here) in samples.iter().zip(&carried) {
            add(number, here);
        }
        let end = self.profile.samples.len() as u32;
        if !self.parts.has_said {
            // It is not known which samples of the session these are. Those that live on come again in the next file.
            let first = self.sample_runs.first().map_or(end, |run| run.1);
            for here in (first..end).map(SampleId) {
                let samples = &mut self.profile.samples;
                if samples.lifetime(here) == Lifetime::StillLive {
                    samples.set_lifetime(here, Lifetime::Freed, Some(self.last_time));
                }
            }
            return;
        }
        for (at, &(number, here)) in self.sample_runs.iter().enumerate() {
            let to = self.sample_runs.get(at + 1).map_or(end, |run| run.1);
            for (number, here) in (number..).zip(here..to) {
                add(
                    next.wrapping_add(number.wrapping_sub(first)),
                    Some(SampleId(here)),
                );
            }
        }
        self.parts.alive = alive;
    }
}
