//! The two halves of the samples, against what two sessions with twice the period would record.

use nthbyte_profile::event::{LabelSetId, Nanos, NodeId, SampleId, ThreadId, TypeId};
use nthbyte_profile::model::{Lifetime, Profile, Sample, SamplingId, Shape};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Halves};
use nthbyte_sampling::{Period, Sampler};
use proptest::prelude::*;

const PERIOD: u64 = 4096;

fn made(distances: Distances, period: u64, samples: u32, seed: u64) -> Profile {
    let setup = Synthetic {
        samples,
        seed,
        distances,
        period,
        ..Synthetic::default()
    };
    Profile::read(&setup.bytes()[..]).expect("a profile")
}

/// A profile of so many blocks of one size, as a sampler sees them; and how many sample points each sample has.
fn sampled(distances: Distances, size: u64, blocks: u32) -> Profile {
    let mut profile = Profile::empty(
        Synthetic {
            distances,
            period: PERIOD,
            ..Synthetic::default()
        }
        .meta(),
    );
    let mut sampler = Sampler::new(Period::new(PERIOD).expect("a period"), distances, 7);
    for number in 0..blocks {
        let points = sampler.advance(size);
        if points > 0 {
            let pushed = profile.samples.push(Sample {
                time: Nanos(number.into()),
                thread: ThreadId(0),
                stack: NodeId::ROOT,
                shape: Shape {
                    size,
                    block: size,
                    points,
                    sampling: SamplingId(0),
                },
                type_id: TypeId::UNKNOWN,
                labels: LabelSetId::NONE,
                lifetime: Lifetime::StillLive,
                freed: None,
            });
            assert!(pushed.is_some());
        }
    }
    profile
}

fn all(profile: &Profile) -> Vec<Halves> {
    let ids = profile.samples.ids();
    let halving = nthbyte_profile::Halving::of(profile);
    ids.map(|id| halving.halves(profile, id)).collect()
}

/// A block is in each half as often as it is sampled with twice the period, and in both as often as if they knew nothing
/// of each other: else a choice by one half says something of the other one.
#[test]
fn halves_of_exponential_distances_are_independent() {
    for size in [16, 400, 2000, 4096, 9000, 40_000] {
        let blocks = 200_000;
        let halves = all(&sampled(Distances::Exponential, size, blocks));
        let probability = -(-(size as f64) / (2 * PERIOD) as f64).exp_m1();
        let both = |of: &&Halves| of.first > 0 && of.second > 0;
        for (what, count, expected) in [
            (
                "first",
                halves.iter().filter(|of| of.first > 0).count(),
                probability,
            ),
            (
                "second",
                halves.iter().filter(|of| of.second > 0).count(),
                probability,
            ),
            (
                "both",
                halves.iter().filter(both).count(),
                probability * probability,
            ),
        ] {
            let (mean, count) = (f64::from(blocks) * expected, count as f64);
            // Four standard deviations of a binomial number, and one more.
            let most = 4.0 * (mean * (1.0 - expected)).sqrt() + 1.0;
            assert!(
                (count - mean).abs() <= most,
                "{size} {what}: {count} {mean}"
            );
        }
    }
}

/// With fixed distances, a half has the numbers of points that a grid of twice the distance gives.
#[test]
fn halves_of_fixed_distances_have_every_other_point() {
    for size in [100, 3000, 5000, 9000, 20_000] {
        let blocks = 50_000_u32;
        let profile = sampled(Distances::Fixed, size, blocks);
        let whole = (size / (2 * PERIOD)) as u32;
        let part = (size % (2 * PERIOD)) as f64 / (2 * PERIOD) as f64;
        let halves = all(&profile);
        for of in &halves {
            assert!(of.first.abs_diff(of.second) <= 1, "{size} {of:?}");
            assert!([whole, whole + 1].contains(&of.first), "{size} {of:?}");
        }
        let points: u32 = halves.iter().map(|of| of.second).sum();
        let mean = f64::from(blocks) * (f64::from(whole) + part);
        let most = 4.0 * (f64::from(blocks) * part * (1.0 - part)).sqrt() + 1.0;
        assert!(
            (f64::from(points) - mean).abs() <= most,
            "{size}: {points} {mean}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No sample is in neither half, and the half that is kept is the second one, whatever was removed before.
    #[test]
    fn the_half_that_is_kept_is_the_second_one(
        samples in 0_u32..500,
        seed: u64,
        distances in proptest::sample::select(vec![Distances::Exponential, Distances::Fixed, Distances::Every]),
        until in 0.0_f64..1.0,
    ) {
        let period = if distances == Distances::Every { 1 } else { PERIOD };
        let mut profile = made(distances, period, samples, seed);
        let before = all(&profile);
        let of = |id: SampleId| profile.samples.points(id);
        let points: Vec<u32> = profile.samples.ids().map(of).collect();
        for (of, points) in before.iter().zip(points) {
            match distances {
                Distances::Fixed => prop_assert_eq!(of.first + of.second, points),
                Distances::Exponential => prop_assert!(of.first.max(of.second) == points),
                Distances::Every => prop_assert_eq!((of.first, of.second), (points, points)),
            }
        }
        // First, some are removed.
        let removed = Nanos((profile.end.0 as f64 * until) as u64);
        let is_left = |time: Nanos| time >= removed;
        let times: Vec<Nanos> = profile.samples.iter().map(|sample| sample.time).collect();
        let numbers = (0..).zip(times).filter(|&(_, time)| is_left(time));
        let left: Vec<u32> = numbers.map(|(number, _)| number).collect();
        profile.retain_samples(|sample| is_left(sample.time));
        let numbers: Vec<u32> = profile.samples.ids().map(|id| profile.samples.number(id).0).collect();
        prop_assert_eq!(&numbers, &left);
        let halves: Vec<Halves> = left.iter().map(|&number| before[number as usize]).collect();
        prop_assert_eq!(&all(&profile), &halves);
        profile.keep_second_half();
        let kept = left.iter().filter(|&&number| before[number as usize].second > 0);
        let numbers: Vec<u32> = profile.samples.ids().map(|id| profile.samples.number(id).0).collect();
        prop_assert_eq!(numbers, kept.copied().collect::<Vec<u32>>());
        let points: Vec<u32> = profile.samples.ids().map(|id| profile.samples.points(id)).collect();
        let second = halves.iter().map(|of| of.second).filter(|&points| points > 0);
        prop_assert_eq!(points, second.collect::<Vec<u32>>());
        let twice = if distances == Distances::Every { 1 } else { 2 * PERIOD };
        prop_assert_eq!(profile.periods(), vec![twice]);
        // Time samples have their period still.
        prop_assert_eq!(profile.time_hz(), made(distances, period, 0, 1).time_hz());
    }
}
