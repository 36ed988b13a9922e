//! The moment with the most live bytes, estimated from the samples.

use nthbyte_profile::Profile;
use nthbyte_profile::event::SampleId;
use nthbyte_profile::model::Lifetime;

use super::runs::lifetimes_end;

/// Nanoseconds since 1970 of that moment, over all processes of a run; `None` if the times of frees are not known.
/// Samples are expected in the order of their times. If they differ slightly, only the order of events that are
/// close together is affected.
pub(super) fn moment(processes: &[&Profile]) -> Option<u64> {
    if !processes.iter().all(|profile| lifetimes_end(profile)) {
        return None;
    }
    let mut allocated: Vec<(u64, f64)> = Vec::new();
    let mut freed: Vec<(u64, f64)> = Vec::new();
    for profile in processes {
        let weights = profile.shape_weights();
        let start = profile.meta.started_unix_nanos;
        let samples = &profile.samples;
        for id in samples.ids() {
            let bytes = weights[samples.shape_id(id).0 as usize].bytes;
            if let Some((from, to)) = life(profile, id) {
                allocated.push((start.saturating_add(from), bytes));
                if let Some(to) = to {
                    freed.push((start.saturating_add(to), bytes));
                }
            }
        }
    }
    if processes.len() > 1 {
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
pub(super) fn is_alive(profile: &Profile, id: SampleId, moment: u64) -> bool {
    let start = profile.meta.started_unix_nanos;
    life(profile, id).is_some_and(|(from, to)| {
        start.saturating_add(from) <= moment
            && to.is_none_or(|to| start.saturating_add(to) > moment)
    })
}

/// The times of the allocation and of the free, if there was one. `None` if the object died at an
/// unknown time.
fn life(profile: &Profile, id: SampleId) -> Option<(u64, Option<u64>)> {
    let samples = &profile.samples;
    let from = samples.time(id).0;
    match (samples.freed(id), samples.lifetime(id)) {
        (Some(freed), _) => Some((from, Some(freed.0))),
        (None, Lifetime::StillLive) => Some((from, None)),
        (None, _) => None,
    }
}
