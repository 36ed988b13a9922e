//! Made-up services, whose truth is known.

use nthbyte_profile::event::{Nanos, TypeId};
use nthbyte_profile::meta::{Distances, Meta, Method, Source};
use nthbyte_profile::model::{Lifetime, Profile, Sample, SamplingId, TypeNames};
use nthbyte_profile::synthetic::{self, Synthetic};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const PERIOD: u64 = 64 << 10;
pub const MINUTE: u64 = 60_000_000_000;
const TYPES: [&str; 3] = ["", "bytes", "dict"];

/// An object: its birth and its death in parts of the run, its size, and its type.
pub type Object = (f64, Option<f64>, u64, u32);

/// A run of a service of so many nanoseconds, with a function for each list of all its objects.
pub fn profile(functions: &[Vec<Object>], length: u64, seed: u64) -> Profile {
    let mut random = StdRng::seed_from_u64(seed);
    let meta = Meta {
        sources: Source::of_session(Method::CutFreeLists, Distances::Exponential, PERIOD, None),
        ..Synthetic::default().meta()
    };
    let mut profile = Profile::empty(meta);
    (profile.end, profile.complete) = (Nanos(length), true);
    synthetic::wait_between_rounds(&mut profile);
    profile
        .types
        .extend(TYPES[1..].iter().map(|name| TypeNames {
            name: (*name).to_owned(),
            native: String::new(),
        }));
    let mut samples = Vec::new();
    for (number, objects) in functions.iter().enumerate() {
        let stack = synthetic::add_function(&mut profile, &format!("function_{number}"));
        for &object in objects {
            if random.random_bool(-(-(object.2 as f64) / PERIOD as f64).exp_m1()) {
                samples.push((object, stack));
            }
        }
    }
    samples.sort_by(|one, other| one.0.0.total_cmp(&other.0.0));
    let nanos = |part: f64| Nanos((part * length as f64) as u64);
    for ((birth, death, size, kind), stack) in samples {
        profile.samples.push(Sample {
            stack,
            type_id: TypeId(kind),
            lifetime: death.map_or(Lifetime::StillLive, |_| Lifetime::Freed),
            freed: death.map(nanos),
            ..synthetic::sample(nanos(birth), size, SamplingId(0))
        });
    }
    profile
}

pub fn even(count: u32) -> impl Iterator<Item = f64> {
    (0..count).map(move |number| (f64::from(number) + 0.5) / f64::from(count))
}

/// Objects that die at once: 100 MB.
pub fn churn() -> Vec<Object> {
    even(50_000)
        .map(|at| (at, Some(at + 1e-5), 2000, 1))
        .collect()
}

/// Objects that are kept, of so many bytes together.
pub fn leak(bytes: u64) -> Vec<Object> {
    even((bytes / 2000) as u32)
        .map(|at| (at, None, 2000, 1))
        .collect()
}
