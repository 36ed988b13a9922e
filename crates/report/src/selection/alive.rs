//! What was alive at a moment, and when most was.
//!
//! An object is alive from the time of its allocation, including it, until the time of its free,
//! excluding it. One that died young at an unknown time was alive at no moment.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId};
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

/// Whether the sampled object was alive.
pub(crate) fn is_alive(sample: &Sample, moment: Moment) -> bool {
    let time = match moment {
        Moment::End => return sample.lifetime == Lifetime::StillLive,
        Moment::Time(time) => time,
    };
    let ended = match (sample.freed, sample.lifetime) {
        (Some(freed), _) => freed <= time,
        (None, Lifetime::StillLive) => false,
        (None, _) => true,
    };
    sample.time <= time && !ended
}

/// The sums over what was alive.
pub(crate) fn alive_at(profile: &Profile, moment: Moment) -> Totals {
    let shapes = profile.samples.shapes().iter();
    let shapes: Vec<Totals> = shapes
        .map(|&shape| Totals::of_sample(profile, shape))
        .collect();
    let mut totals = Totals::default();
    for id in profile.samples.ids() {
        if is_alive(&profile.samples.get(id), moment) {
            totals.add(&shapes[profile.samples.shape_id(id).0 as usize]);
        }
    }
    totals
}

/// The first time of `since..until` at which most was alive, by the estimate; `None` if nothing was
/// allocated before `until`.
pub(super) fn peak(profile: &Profile, since: Nanos, until: Nanos) -> Option<Nanos> {
    let samples = &profile.samples;
    let weights = profile.shape_weights();
    let bytes = |id: SampleId| weights[samples.shape_id(id).0 as usize].bytes;
    let is_ever_alive = |id: &SampleId| {
        samples.lifetime(*id) == Lifetime::StillLive || samples.freed(*id).is_some()
    };
    let end = |id: &SampleId| samples.freed(*id).unwrap_or(Nanos(u64::MAX));
    // Nearly sorted already, which a stable sort is fast with.
    let mut born: Vec<SampleId> = samples.ids().filter(is_ever_alive).collect();
    born.sort_by_key(|id| samples.time(*id));
    let mut dead: Vec<SampleId> = born.clone();
    dead.retain(|id| samples.freed(*id).is_some());
    dead.sort_by_key(end);
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
        while let Some(id) = dead.next_if(|id| end(id) <= time) {
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
