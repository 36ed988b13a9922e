//! Countdowns at their limits, and names of distributions.

use nthbyte_sampling::{Countdown, Distances, Period, SamplePoints, Sampler};

fn points(period: u64, distances: Distances, seed: u64) -> SamplePoints {
    SamplePoints::new(Period::new(period).unwrap(), distances, seed)
}

#[test]
fn bytes_that_are_passed_bring_the_sample_nearer() {
    let mut countdown = Countdown::new(&mut points(1000, Distances::Fixed, 1));
    assert_eq!(countdown.bytes_until_sample(), 1000);
    countdown.pass(300);
    assert_eq!(countdown.bytes_until_sample(), 700);
    countdown.pass(699);
    assert_eq!(countdown.bytes_until_sample(), 1);
    // There was a sample point after all: it moves to the next byte.
    countdown.pass(5);
    assert_eq!(countdown.bytes_until_sample(), 1);
}

#[test]
fn a_stored_countdown_is_at_least_one_byte() {
    for (stored, left) in [(0, 1), (1, 1), (700, 700)] {
        assert_eq!(Countdown::of_bytes(stored).bytes_until_sample(), left);
    }
}

#[test]
fn counts_of_sample_points_have_a_largest_value() {
    let mut sampler = Sampler::new(Period::new(64).unwrap(), Distances::Fixed, 1);
    assert_eq!(sampler.advance(1 << 40), u32::MAX);
    assert_eq!(sampler.bytes_until_sample(), 64);
    assert_eq!(sampler.advance(64 * u64::from(u32::MAX)), u32::MAX);
    assert_eq!(sampler.advance(64 * u64::from(u32::MAX) - 64), u32::MAX - 1);
}

/// Up to 64 points are drawn, and the others are the expected number for the bytes that remain.
#[test]
fn a_large_allocation_has_as_many_points_as_periods() {
    const PERIOD: u64 = 512;
    for seed in 0..20 {
        let mut sampler = Sampler::new(Period::new(PERIOD).unwrap(), Distances::Exponential, seed);
        let count = u64::from(sampler.advance(1_000_000 * PERIOD));
        // 64 distances together are less than 300 periods, but for one time in 1e60.
        assert!((1_000_000 - 300..=1_000_064).contains(&count), "{count}");
    }
}

#[test]
fn names_are_those_of_the_command_line() {
    for (name, distances) in [
        ("exponential", Distances::Exponential),
        ("fixed", Distances::Fixed),
        ("every", Distances::Every),
    ] {
        assert_eq!(distances.name(), name);
        assert_eq!(Distances::of_name(name), Some(distances));
    }
    assert_eq!(Distances::of_name(""), None);
}
