//! Do 95 % intervals hold 95 times in 100? Made-up functions whose bytes are known are sampled with
//! many seeds.

use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::{LOST_UNIT, Sampling, SamplingId, Shape};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Meta, Profile};
use nthbyte_report::{Estimator, Totals};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Binomial, Distribution, Geometric};

const PERIOD: u64 = 512 << 10;

/// Objects of one size that a function allocates.
#[derive(Clone, Copy, Debug)]
struct Objects {
    size: u64,
    count: u64,
}

/// `count` such that `samples` are expected of small ones.
fn worth(size: u64, samples: f64) -> Objects {
    let count = (samples * PERIOD as f64 / size as f64).round() as u64;
    Objects { size, count }
}

fn bytes(function: &[Objects]) -> f64 {
    function.iter().map(|o| (o.size * o.count) as f64).sum()
}

fn meta() -> Meta {
    let setup = Synthetic {
        period: PERIOD,
        distances: Distances::Exponential,
        ..Synthetic::default()
    };
    setup.meta()
}

fn shape(size: u64) -> Shape {
    Shape {
        size,
        block: size.next_multiple_of(16),
        points: 1,
        sampling: SamplingId::default(),
    }
}

/// As [`sample`], but halfway through the function's work its source's period becomes another one.
fn sample_two_periods(profile: &Profile, function: &[Objects], random: &mut StdRng) -> Totals {
    let mut totals = Totals::default();
    for objects in function {
        let halves = [objects.count / 2, objects.count - objects.count / 2];
        for ((number, sampling), count) in (0..).zip(&profile.samplings).zip(halves) {
            let shape = Shape {
                sampling: SamplingId(number),
                ..shape(objects.size)
            };
            let probability = sampling.weight(&shape).probability;
            let seen = Binomial::new(count, probability).expect("a probability");
            let one = Totals::of_sample(profile, shape);
            for _ in 0..seen.sample(random) {
                totals.add(&one);
            }
        }
    }
    totals
}

/// As [`sample`], with a period that follows the samples, as `--every auto` does: longer after each few samples in a row,
/// shorter after a while without any. The function makes its objects of all sizes by turns.
fn sample_adaptively(profile: &Profile, function: &[Objects], random: &mut StdRng) -> Totals {
    const TURNS: u64 = 20;
    let mut totals = Totals::default();
    let longest = profile.samplings.len() - 1;
    let (mut at, mut in_a_row) = (0_usize, 0);
    for turn in 0..TURNS {
        for objects in function {
            let part = |turn: u64| objects.count * turn / TURNS;
            let mut left = part(turn + 1) - part(turn);
            loop {
                let shape = Shape {
                    sampling: SamplingId(at as u32),
                    ..shape(objects.size)
                };
                let probability = profile.samplings[at].weight(&shape).probability;
                let before = Geometric::new(probability).expect("a probability");
                let before = before.sample(random);
                if before >= left {
                    break;
                }
                left -= before + 1;
                totals.add(&Totals::of_sample(profile, shape));
                in_a_row += 1;
                if in_a_row == 5 {
                    (at, in_a_row) = ((at + 1).min(longest), 0);
                }
            }
        }
        if in_a_row < 2 {
            at = at.saturating_sub(1);
        }
        in_a_row = 0;
    }
    totals
}

fn sample(profile: &Profile, function: &[Objects], random: &mut StdRng) -> Totals {
    let mut totals = Totals::default();
    for objects in function {
        let shape = shape(objects.size);
        let probability = -(-(shape.block as f64) / PERIOD as f64).exp_m1();
        let seen = Binomial::new(objects.count, probability).expect("a probability");
        let one = Totals::of_sample(profile, shape);
        for _ in 0..seen.sample(random) {
            totals.add(&one);
        }
    }
    totals
}

struct Outcome {
    coverage: f64,
    below: f64,
    above: f64,
    mean: f64,
}

/// Samples a function once.
type Sampler = fn(&Profile, &[Objects], &mut StdRng) -> Totals;

fn cover(
    profile: &Profile,
    sample: Sampler,
    function: &[Objects],
    runs: u32,
    seed: u64,
) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let estimator = Estimator::new(profile, &Totals::default());
    let truth = bytes(function);
    let (mut low, mut high, mut sum) = (0_u32, 0_u32, 0.0);
    for _ in 0..runs {
        let found = estimator.bytes(&sample(profile, function, &mut random));
        low += u32::from(truth < found.low);
        high += u32::from(truth > found.high);
        sum += found.estimate;
    }
    let share = |count: u32| 100.0 * f64::from(count) / f64::from(runs);
    Outcome {
        coverage: 100.0 - share(low) - share(high),
        below: share(low),
        above: share(high),
        mean: sum / f64::from(runs) / truth,
    }
}

/// Functions of which so many samples are expected, evenly in proportion, of sizes drawn by `size`.
fn functions(
    number: u32,
    expected: std::ops::Range<f64>,
    classes: u32,
    mut size: impl FnMut(&mut StdRng) -> u64,
) -> Vec<Vec<Objects>> {
    let mut random = StdRng::seed_from_u64(u64::from(number) + 17);
    let span = (expected.end / expected.start).ln();
    let mut one = |random: &mut StdRng| {
        let samples = expected.start * (span * random.random::<f64>()).exp();
        let class = |_| worth(size(random), samples / f64::from(classes));
        (0..classes).map(class).collect()
    };
    (0..number).map(|_| one(&mut random)).collect()
}

/// 93 to 97 of 100 intervals hold, over all functions together; and the estimates' mean is right.
/// A single function may be further off, because its number of samples is a whole number.
fn assert_coverage(what: &str, functions: &[Vec<Objects>], runs: u32) {
    assert_coverage_of(&Profile::empty(meta()), sample, what, functions, runs);
}

fn assert_coverage_of(
    profile: &Profile,
    sample: Sampler,
    what: &str,
    functions: &[Vec<Objects>],
    runs: u32,
) {
    let outcomes = (0..)
        .zip(functions)
        .map(|(seed, function)| cover(profile, sample, function, runs, seed));
    let outcomes: Vec<Outcome> = outcomes.collect();
    let mean =
        |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
    let (coverage, estimate) = (mean(|o| o.coverage), mean(|o| o.mean));
    let report = format!("{what}: {coverage:.2} of 100, mean {estimate:.4}");
    println!("{report}");
    assert!((93.0..=97.0).contains(&coverage), "{report}");
    assert!((0.99..=1.01).contains(&estimate), "{report}");
    // Neither side is responsible for all errors.
    assert!(
        mean(|o| o.below) < 4.0 && mean(|o| o.above) < 4.0,
        "{report}"
    );
    let worst = outcomes.iter().map(|o| o.coverage).fold(100.0, f64::min);
    assert!(worst > 85.0, "{what}: one function at {worst}");
}

#[test]
fn small_objects_few_samples() {
    let functions = functions(120, 2.0..12.0, 1, |_| 64);
    assert_coverage("few samples", &functions, 150);
}

#[test]
fn small_objects_many_samples() {
    let functions = functions(60, 12.0..2000.0, 1, |_| 48);
    assert_coverage("many samples", &functions, 200);
}

#[test]
fn many_small_sizes() {
    // Sizes that are not multiples of 16 count for less than their block.
    let functions = functions(80, 4.0..200.0, 4, |random| random.random_range(1..600));
    assert_coverage("many small sizes", &functions, 150);
}

#[test]
fn sizes_around_the_period() {
    let size = |random: &mut StdRng| random.random_range(PERIOD / 16..PERIOD);
    let functions = functions(80, 10.0..200.0, 3, size);
    assert_coverage("around the period", &functions, 150);
}

#[test]
fn small_and_large_together() {
    let size = |random: &mut StdRng| 32 << random.random_range(0..18);
    let functions = functions(100, 10.0..400.0, 6, size);
    assert_coverage("mixed", &functions, 150);
}

#[test]
fn certain_objects_beside_small_ones() {
    let mut functions = functions(80, 3.0..50.0, 2, |_| 64);
    for function in &mut functions {
        function.push(Objects {
            size: 16 << 20,
            count: 7,
        });
    }
    assert_coverage("certain and small", &functions, 150);
}

#[test]
fn objects_much_larger_than_the_period_are_nearly_exact() {
    let function = [Objects {
        size: 64 << 20,
        count: 10,
    }];
    let (profile, mut random) = (Profile::empty(meta()), StdRng::seed_from_u64(1));
    let estimator = Estimator::new(&profile, &Totals::default());
    let found = estimator.bytes(&sample(&profile, &function, &mut random));
    let truth = bytes(&function);
    assert!((found.estimate / truth - 1.0).abs() < 1e-9);
    assert_eq!(found.low, found.estimate);
    // A few small ones beside them may have gone unseen.
    assert!(found.high > truth && found.high < truth + 3.1 * PERIOD as f64);
}

#[test]
fn intervals_are_correct_if_the_period_changes() {
    let mut profile = Profile::empty(meta());
    // Eight times as many samples in the second half.
    profile.samplings.truncate(1);
    profile.samplings.push(Sampling {
        period: PERIOD / 8,
        ..profile.samplings[0]
    });
    let size = |random: &mut StdRng| 32 << random.random_range(0..16);
    let functions = functions(80, 6.0..200.0, 4, size);
    assert_coverage_of(&profile, sample_two_periods, "two periods", &functions, 150);
}

#[test]
fn intervals_include_what_was_lost() {
    let mut profile = Profile::empty(meta());
    // In the second half, a third of the samples and of the large blocks among them is lost.
    profile.samplings.truncate(1);
    profile.samplings.push(Sampling {
        lost: LOST_UNIT / 2,
        ..profile.samplings[0]
    });
    let size = |random: &mut StdRng| 32 << random.random_range(0..16);
    let functions = functions(80, 6.0..200.0, 4, size);
    assert_coverage_of(&profile, sample_two_periods, "lost", &functions, 150);
}

#[test]
fn intervals_are_correct_if_the_period_follows_the_samples() {
    let mut profile = Profile::empty(meta());
    let first = profile.samplings[0];
    profile.samplings = (0..6)
        .map(|step| Sampling {
            period: (PERIOD / 32) << step,
            ..first
        })
        .collect();
    let size = |random: &mut StdRng| 32 << random.random_range(0..14);
    let functions = functions(80, 6.0..200.0, 4, size);
    assert_coverage_of(
        &profile,
        sample_adaptively,
        "a period that follows",
        &functions,
        150,
    );
}

#[test]
fn without_samples_the_upper_limit_is_still_correct() {
    let estimator = Estimator::new(&Profile::empty(meta()), &Totals::default());
    let found = estimator.bytes(&Totals::default());
    assert_eq!((found.estimate, found.low), (0.0, 0.0));
    let periods = found.high / PERIOD as f64;
    assert!((2.99..3.01).contains(&periods), "{periods} periods");
}
