//! What the two halves of the samples say, sample by sample.

use nthbyte_profile::event::Nanos;
use nthbyte_profile::model::Shape;
use nthbyte_profile::{Halves, Halving, Profile};

/// What was alive at a time, in bytes, by one half of the samples, which has twice the period; and the variance of that.
fn alive(profile: &Profile, time: Nanos, half: fn(Halves) -> u32) -> (f64, f64) {
    let ids = profile.samples.ids().filter(|&id| {
        let sample = profile.samples.get(id);
        sample.time <= time && sample.freed.is_none_or(|freed| freed > time)
    });
    let halving = Halving::of(profile);
    let samples = ids.map(|id| {
        let shape = profile.samples.get(id).shape;
        let points = half(halving.halves(profile, id));
        let sampling = profile.sampling(shape.sampling).of_half();
        let weight = sampling.weight(&Shape { points, ..shape });
        let bytes = if points > 0 { weight.bytes } else { 0.0 };
        (bytes, bytes * bytes * (1.0 - weight.probability))
    });
    samples.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

/// By the half that finds a moment: less its standard deviation, for it is one for which many samples speak.
pub fn first(profile: &Profile, time: Nanos) -> f64 {
    let (bytes, variance) = alive(profile, time, |halves| halves.first);
    bytes - variance.sqrt()
}

/// By the half that says what was alive then.
pub fn second(profile: &Profile, time: Nanos) -> f64 {
    alive(profile, time, |halves| halves.second).0
}

/// The first of the times at which most was alive, by the first half; and how much that was.
pub fn found(profile: &Profile, times: impl IntoIterator<Item = Nanos>) -> (Nanos, f64) {
    let curve = times.into_iter().map(|time| (time, first(profile, time)));
    curve
        .reduce(|most, of| if of.1 > most.1 { of } else { most })
        .expect("a time")
}
