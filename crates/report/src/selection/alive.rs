//! What was alive at a moment, and when most was.
//!
//! An object is alive from the time of its allocation, including it, until the time of its free,
//! excluding it. What a process has not freed, it loses when it ends. An object that died young at an
//! unknown time was alive at no moment.

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
        .then(|| peak(profile, Nanos(0), Nanos(u64::MAX)))
        .flatten()
}

/// The first time of `since..until` at which most was alive, by the estimate; `None` if nothing was
/// allocated before `until`.
pub(super) fn peak(profile: &Profile, since: Nanos, until: Nanos) -> Option<Nanos> {
    let samples = &profile.samples;
    let weights = profile.shape_weights();
    let bytes = |id: SampleId| weights[samples.shape_id(id).0 as usize].bytes;
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
    let mut dead = dead.into_iter().peekable();
    let mut born = born.into_iter().peekable();
    let (mut alive, mut most, mut at) = (0.0, 0.0, None);
    let mut started = since == Nanos(0);
    while let Some(&first) = born.peek() {
        let next = samples.time(first);
        if next >= until {
            break;
        }
        // What is alive when the range begins may be the most of it.
        let time = if !started && next >= since {
            since
        } else {
            next
        };
        started |= time >= since;
        while let Some(id) = born.next_if(|&id| samples.time(id) <= time) {
            alive += bytes(id);
        }
        while let Some((_, id)) = dead.next_if(|&(end, _)| end <= time) {
            alive -= bytes(id);
        }
        if time >= since && (alive > most || at.is_none()) {
            (most, at) = (alive, Some(time));
        }
    }
    if at.is_none() && !started && !samples.is_empty() {
        // Nothing is allocated in the range: what is alive only shrinks.
        return Some(since);
    }
    at
}
