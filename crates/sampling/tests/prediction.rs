//! The arithmetic of the countdown against the definition: numbered bytes, some of them sample points.

use nthbyte_sampling::{Countdown, Distances, Period, SamplePoints, Sampler, Weight};
use proptest::prelude::*;

fn periods() -> impl Strategy<Value = Period> {
    prop_oneof![
        Just(1),
        64u64..=512,
        64u64..=1 << 20,
        (6u32..=40).prop_map(|bits| 1 << bits)
    ]
    .prop_map(|bytes| Period::new(bytes).expect("in the range"))
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![16u64..=512, 0u64..=16, 0u64..=1 << 16, 0u64..=1 << 24]
}

proptest! {
    /// The number of sample points in each allocation is exact, up to 64 of them.
    #[test]
    fn points_are_where_the_distances_put_them(
        period in periods(),
        fixed: bool,
        seed: u64,
        sizes in prop::collection::vec(sizes(), 1..300),
    ) {
        let distances = if fixed { Distances::Fixed } else { Distances::Exponential };
        let mut sampler = Sampler::new(period, distances, seed);
        let mut sequence = SamplePoints::new(period, distances, seed);
        let mut allocated = 0u64;
        let mut next_point = sequence.next_distance();
        for size in sizes {
            prop_assert_eq!(sampler.bytes_until_sample(), next_point - allocated);
            let end = allocated + size;
            let mut expected = 0u32;
            if sampler.distances() != Distances::Exponential {
                // Bytes that are multiples of the period, by division alone.
                expected = u32::try_from(end / period.bytes() - allocated / period.bytes()).unwrap();
                next_point = (end / period.bytes() + 1) * period.bytes();
                prop_assert_eq!(sampler.advance(size), expected);
            } else {
                while next_point <= end && expected < 64 {
                    expected += 1;
                    if expected < 64 {
                        next_point += sequence.next_distance();
                    }
                }
                let points = sampler.advance(size);
                if expected < 64 {
                    prop_assert_eq!(points, expected);
                } else {
                    prop_assert!(points >= 64);
                    next_point = end + sequence.next_distance();
                }
            }
            allocated = end;
        }
    }

    /// Size classes: this many allocations pass, and the one after them is sampled.
    #[test]
    fn allocations_until_sample_is_exact(period in periods(), seed: u64, size in 1u64..4096) {
        let mut points = SamplePoints::new(period, Distances::Exponential, seed);
        let mut countdown = Countdown::new(&mut points);
        let free = countdown.allocations_until_sample(size);
        countdown.pass(free * size);
        prop_assert_eq!(countdown.allocations_until_sample(size), 0);
        prop_assert!(countdown.advance(size, &mut points) >= 1);
    }
}

#[test]
fn never_never_ends() {
    let mut points = SamplePoints::new(Period::EVERY, Distances::Fixed, 0);
    let mut countdown = Countdown::NEVER;
    for _ in 0..10 {
        assert_eq!(countdown.advance(u64::MAX - 1, &mut points), 0);
        countdown.pass(u64::MAX);
        assert_eq!(countdown, Countdown::NEVER);
    }
}

#[test]
fn division_by_a_size_of_zero_is_no_panic() {
    let countdown = Countdown::NEVER;
    assert_eq!(countdown.allocations_until_sample(0), u64::MAX);
}

/// Sums of weights estimate what was allocated: here 64 GiB in objects of many sizes, with a
/// countdown for each size as in the heap. The standard error of the sum is about
/// sqrt(bytes·period), 0.3 %; five of them are allowed.
#[test]
fn weights_add_up_to_the_bytes_allocated() {
    let period = Period::new(524_288).unwrap();
    let mut points = SamplePoints::new(period, Distances::Exponential, 11);
    let mut allocated = 0u64;
    let mut estimate = 0.0;
    for size in [16, 48, 512, 4096, 65_536, 1 << 20, 8 << 20] {
        let mut countdown = Countdown::new(&mut points);
        let mut left = (64u64 << 30) / 7 / size;
        while left > 0 {
            let free = countdown.allocations_until_sample(size).min(left - 1);
            countdown.pass(free * size);
            left -= free + 1;
            allocated += (free + 1) * size;
            let hit = countdown.advance(size, &mut points);
            if hit > 0 {
                estimate +=
                    Weight::of(Distances::Exponential, period.bytes(), size, size, hit).bytes;
            }
        }
    }
    let error = (allocated as f64 * 524_288.0).sqrt();
    assert!(
        (estimate - allocated as f64).abs() < 5.0 * error,
        "{estimate} {allocated}"
    );
}

/// A change of the period draws the distance anew and takes no random number besides: the model is a list of distances.
#[test]
fn a_change_of_the_period_draws_one_distance() {
    let periods = [4096, 512, 1 << 20, 64].map(|bytes| Period::new(bytes).unwrap());
    let mut sampler = Sampler::new(periods[0], Distances::Exponential, 5);
    let mut sequence = SamplePoints::new(periods[0], Distances::Exponential, 5);
    let mut until = sequence.next_distance();
    for turn in 0..4000_usize {
        if turn % 7 == 6 {
            let period = periods[turn % 4];
            sampler.set_period(period);
            sequence.set_period(period);
            until = sequence.next_distance();
            assert_eq!(sampler.period(), period);
        }
        let mut expected = 0;
        let mut left = 48;
        while until <= left {
            left -= until;
            until = sequence.next_distance();
            expected += 1;
        }
        until -= left;
        assert_eq!(sampler.advance(48), expected, "turn {turn}");
        assert_eq!(sampler.bytes_until_sample(), until);
    }
    // Nothing changes where every byte is a sample point, or would be.
    sampler.set_period(Period::EVERY);
    assert_ne!(sampler.period(), Period::EVERY);
    let mut every = Sampler::new(Period::EVERY, Distances::Every, 1);
    every.set_period(periods[0]);
    assert_eq!(every.advance(10), 10);
}

/// The period follows what was sampled, as it does with `--every auto`, and each sample has the weight of the period in
/// force. The sum of the weights has the allocated bytes as its mean: over 4,000 seeds, within five standard errors.
#[test]
fn weights_of_changed_periods_add_up_to_the_bytes_allocated() {
    const SEEDS: u64 = 4000;
    let sizes = [16_u64, 96, 1024, 40_000];
    let (mut sum, mut squares) = (0.0, 0.0);
    let allocated: u64 = (0..400).map(|turn| sizes[turn % 4]).sum();
    for seed in 0..SEEDS {
        let mut sampler = Sampler::new(Period::new(1024).unwrap(), Distances::Exponential, seed);
        let mut estimate = 0.0;
        for turn in 0..400 {
            let (size, period) = (sizes[turn % 4], sampler.period());
            let points = sampler.advance(size);
            if points > 0 {
                estimate +=
                    Weight::of(Distances::Exponential, period.bytes(), size, size, points).bytes;
                // Up with a small object, down with a large one: a period that depends on the samples.
                let bytes = if size < 1000 {
                    period.bytes() * 4
                } else {
                    period.bytes() / 2
                };
                sampler.set_period(Period::new(bytes.clamp(512, 1 << 18)).unwrap());
            }
        }
        sum += estimate;
        squares += estimate * estimate;
    }
    let mean = sum / SEEDS as f64;
    let error = ((squares / SEEDS as f64 - mean * mean) / SEEDS as f64).sqrt();
    assert!(
        (mean - allocated as f64).abs() < 5.0 * error && error < 0.01 * mean,
        "{mean} {allocated} {error}"
    );
}
