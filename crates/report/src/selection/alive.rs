//! What was alive at a moment, and when most was.
//!
//! An object is alive from the time of its allocation, including it, until the time of its free,
//! excluding it. What a process has not freed, it loses when it ends. An object that died young at an
//! unknown time was alive at no moment.

use std::iter::Peekable;
use std::ops::RangeInclusive;
use std::vec::IntoIter;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId, ThreadId};
use nthbyte_profile::model::{Lifetime, Sample};

use crate::estimate::Totals;

/// A moment at which objects are alive or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The end of the process that allocated the object.
    #[default]
    End,
    /// This time.
    Time(Nanos),
}

/// When sampled objects were alive. It does not refer to the profile, whose samples may be removed
/// meanwhile.
pub(crate) struct Lives {
    /// By thread: the end of its process, if others went on.
    ends: Vec<Option<Nanos>>,
}

impl Lives {
    pub(crate) fn of(profile: &Profile) -> Self {
        let threads = (0..profile.threads.len() as u32).map(ThreadId);
        let end = |thread: ThreadId| {
            let process = profile.processes.get(profile.process_of(thread).index())?;
            Some(process.end).filter(|&end| end < profile.end)
        };
        Self {
            ends: threads.map(end).collect(),
        }
    }

    /// The times of the allocation and of the free, if there was one. `None` if the object died at an
    /// unknown time.
    fn life(&self, sample: &Sample) -> Option<(Nanos, Option<Nanos>)> {
        let from = sample.time;
        match (sample.freed, sample.lifetime) {
            (Some(freed), _) => Some((from, Some(freed))),
            (None, Lifetime::StillLive) => {
                let end = self.ends.get(sample.thread.index()).copied().flatten();
                Some((from, end.filter(|&end| from < end)))
            }
            (None, _) => None,
        }
    }

    /// Whether the sampled object was alive.
    pub(crate) fn is_alive(&self, sample: &Sample, moment: Moment) -> bool {
        let Moment::Time(time) = moment else {
            return sample.lifetime == Lifetime::StillLive;
        };
        self.life(sample)
            .is_some_and(|(from, to)| from <= time && to.is_none_or(|to| to > time))
    }
}

/// The sums over what was alive.
pub(crate) fn alive_at(profile: &Profile, moment: Moment) -> Totals {
    let shapes = profile.samples.shapes().iter();
    let shapes: Vec<Totals> = shapes
        .map(|&shape| Totals::of_sample(profile, shape))
        .collect();
    let lives = Lives::of(profile);
    let mut totals = Totals::default();
    for id in profile.samples.ids() {
        if lives.is_alive(&profile.samples.get(id), moment) {
            totals.add(&shapes[profile.samples.shape_id(id).0 as usize]);
        }
    }
    totals
}

/// The first time at which most was alive, by the estimate; `None` if the times of frees are not
/// known, or without a sample.
pub(crate) fn peak_of_all(profile: &Profile) -> Option<Nanos> {
    super::lifetimes_are_known(profile)
        .then(|| most_alive(profile, [Nanos(0)..=Nanos(u64::MAX)]))
        .flatten()
}

/// The first time of the windows at which most was alive, by the estimate; `None` if nothing was allocated before the end of
/// the last one. Windows include both ends. None begins or ends before the one before it.
pub(super) fn most_alive(
    profile: &Profile,
    windows: impl IntoIterator<Item = RangeInclusive<Nanos>>,
) -> Option<Nanos> {
    let mut windows = windows.into_iter().peekable();
    let mut steps = Steps::of(profile).peekable();
    let mut most: Option<(f64, Nanos)> = None;
    while let Some((from, alive)) = steps.next() {
        let next = steps.peek().map(|&(next, _)| next);
        let is_over = |time: Nanos| next.is_none_or(|next| time < next);
        while let Some(window) = windows.peek() {
            let (start, end) = (*window.start(), *window.end());
            if is_over(start) && from <= end && most.is_none_or(|(most, _)| alive > most) {
                most = Some((alive, from.max(start)));
            }
            if !is_over(end) {
                break;
            }
            windows.next();
        }
    }
    most.map(|(_, time)| time)
}

/// The times at which objects were allocated or freed, in order, each with the estimate of the bytes that were alive from
/// then on.
struct Steps<'a> {
    profile: &'a Profile,
    weights: Vec<f64>,
    born: Peekable<IntoIter<SampleId>>,
    dead: Peekable<IntoIter<(Nanos, SampleId)>>,
    alive: f64,
}

impl<'a> Steps<'a> {
    fn of(profile: &'a Profile) -> Self {
        let samples = &profile.samples;
        let lives = Lives::of(profile);
        // Nearly sorted already, which a stable sort is fast with.
        let mut born: Vec<SampleId> = Vec::new();
        let mut dead: Vec<(Nanos, SampleId)> = Vec::new();
        for id in samples.ids() {
            if let Some((_, end)) = lives.life(&samples.get(id)) {
                born.push(id);
                dead.extend(end.map(|end| (end, id)));
            }
        }
        born.sort_by_key(|id| samples.time(*id));
        dead.sort_by_key(|&(end, _)| end);
        let weights = profile.shape_weights();
        Self {
            profile,
            weights: weights.iter().map(|weight| weight.bytes).collect(),
            born: born.into_iter().peekable(),
            dead: dead.into_iter().peekable(),
            alive: 0.0,
        }
    }

    fn bytes(&self, id: SampleId) -> f64 {
        self.weights[self.profile.samples.shape_id(id).0 as usize]
    }
}

impl Iterator for Steps<'_> {
    type Item = (Nanos, f64);

    fn next(&mut self) -> Option<Self::Item> {
        let samples = &self.profile.samples;
        let born = self.born.peek().map(|&id| samples.time(id));
        let dead = self.dead.peek().map(|&(end, _)| end);
        let time = born.into_iter().chain(dead).min()?;
        while let Some(id) = self.born.next_if(|&id| samples.time(id) <= time) {
            self.alive += self.bytes(id);
        }
        while let Some((_, id)) = self.dead.next_if(|&(end, _)| end <= time) {
            self.alive -= self.bytes(id);
        }
        Some((time, self.alive))
    }
}
