//! What the two halves of the samples say, sample by sample.

use nthbyte_profile::event::Nanos;
use nthbyte_profile::model::Shape;
use nthbyte_profile::{Halves, Profile};

/// What was alive at a time, in bytes, by one half of the samples, which has twice the period.
fn alive(profile: &Profile, time: Nanos, half: fn(Halves) -> u32) -> f64 {
    let ids = profile.samples.ids().filter(|&id| {
        let sample = profile.samples.get(id);
        sample.time <= time && sample.freed.is_none_or(|freed| freed > time)
    });
    let bytes = ids.map(|id| {
        let shape = profile.samples.get(id).shape;
        let points = half(profile.halves(id));
        let sampling = profile.sampling(shape.sampling).of_half();
        let weight = sampling.weight(&Shape { points, ..shape });
        if points > 0 { weight.bytes } else { 0.0 }
    });
    bytes.sum()
}

/// By the half that finds a moment.
pub fn first(profile: &Profile, time: Nanos) -> f64 {
    alive(profile, time, |halves| halves.first)
}

/// By the half that says what was alive then.
pub fn second(profile: &Profile, time: Nanos) -> f64 {
    alive(profile, time, |halves| halves.second)
}

/// The first of the times at which most was alive, by the first half; and how much that was.
pub fn found(profile: &Profile, times: impl IntoIterator<Item = Nanos>) -> (Nanos, f64) {
    let curve = times.into_iter().map(|time| (time, first(profile, time)));
    curve
        .reduce(|most, of| if of.1 > most.1 { of } else { most })
        .expect("a time")
}
