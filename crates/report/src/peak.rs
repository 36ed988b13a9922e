//! The moment with the most live bytes, estimated from the samples.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::model::Lifetime;

/// Whether the times of frees are known for objects that survived their first collection.
pub(crate) fn lifetimes_end(profile: &Profile) -> bool {
    let survived = |id: SampleId| profile.samples.lifetime(id) == Lifetime::Survived;
    !profile.meta.interpreter.starts_with("PyPy") && !profile.samples.ids().any(survived)
}

/// The moment with the most live bytes, over all processes; `None` if the times of frees are not known, or without a
/// sample. Samples of a process are expected in the order of their times. If they differ slightly, only the order of
/// events that are close together is affected.
pub(crate) fn moment(profile: &Profile) -> Option<Nanos> {
    if !lifetimes_end(profile) {
        return None;
    }
    let weights = profile.shape_weights();
    let samples = &profile.samples;
    let mut allocated: Vec<(Nanos, f64)> = Vec::new();
    let mut freed: Vec<(Nanos, f64)> = Vec::new();
    for id in samples.ids() {
        let bytes = weights[samples.shape_id(id).0 as usize].bytes;
        if let Some((from, to)) = life(profile, id) {
            allocated.push((from, bytes));
            if let Some(to) = to {
                freed.push((to, bytes));
            }
        }
    }
    if profile.processes.len() > 1 {
        allocated.sort_unstable_by_key(|&(time, _)| time);
    }
    freed.sort_unstable_by_key(|&(time, _)| time);
    let mut freed = freed.into_iter().peekable();
    let (mut alive, mut most, mut at) = (0.0, 0.0, None);
    for (time, bytes) in allocated {
        while let Some((_, gone)) = freed.next_if(|&(freed, _)| freed <= time) {
            alive -= gone;
        }
        alive += bytes;
        if alive > most {
            (most, at) = (alive, Some(time));
        }
    }
    at
}

/// Whether the sampled object was alive at that moment.
pub(crate) fn is_alive(profile: &Profile, id: SampleId, moment: Nanos) -> bool {
    life(profile, id).is_some_and(|(from, to)| from <= moment && to.is_none_or(|to| to > moment))
}

/// The times of the allocation and of the free, if there was one: what a process has not freed, it loses when it ends.
/// `None` if the object died at an unknown time.
fn life(profile: &Profile, id: SampleId) -> Option<(Nanos, Option<Nanos>)> {
    let samples = &profile.samples;
    let from = samples.time(id);
    match (samples.freed(id), samples.lifetime(id)) {
        (Some(freed), _) => Some((from, Some(freed))),
        (None, Lifetime::StillLive) => {
            let process = profile.process_of(samples.thread(id));
            let process = profile.processes.get(process.index());
            let end = process.map(|process| process.end);
            Some((from, end.filter(|&end| from < end && end < profile.end)))
        }
        (None, _) => None,
    }
}
