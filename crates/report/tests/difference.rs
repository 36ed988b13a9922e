//! Are differences told from chance as often as is stated? Made-up programs whose bytes are known are sampled with many seeds, and compared.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, Nanos, NodeId, ThreadId, TypeId};
use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::{
    Frame, Function, Lifetime, Sample, Sampling, SamplingId, Shape, StackNode, TypeNames,
};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_report::diff::{Change, Diff, DiffOptions, Measure};
use nthbyte_report::{By, text};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Binomial, Distribution, LogNormal};

pub(crate) const PERIOD: u64 = 512 << 10;

/// Objects of one size and one fate that a function allocates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects {
    pub(crate) size: u64,
    pub(crate) count: f64,
    pub(crate) fate: Lifetime,
}

pub(crate) type Program = Vec<Vec<Objects>>;

fn bytes(function: &[Objects]) -> f64 {
    function.iter().map(|of| of.size as f64 * of.count).sum()
}

fn allocations(function: &[Objects]) -> f64 {
    function.iter().map(|of| of.count).sum()
}

/// `number` functions of which so many samples are expected, evenly in proportion, at a period of 512 KiB; their sizes are 16 << 0..`sizes`.
pub(crate) fn program(
    number: usize,
    expected: std::ops::Range<f64>,
    sizes: u32,
    seed: u64,
) -> Program {
    let mut random = StdRng::seed_from_u64(seed);
    let span = (expected.end / expected.start).ln();
    let mut function = |_| {
        let classes = random.random_range(1..4);
        let samples = expected.start * (span * random.random::<f64>()).exp() / f64::from(classes);
        let class = |_| {
            let size = (16 << random.random_range(0..sizes)) + random.random_range(0..16);
            Objects {
                size,
                count: (samples * PERIOD as f64 / size as f64).round().max(1.0),
                fate: [Lifetime::DiedYoung, Lifetime::Freed, Lifetime::StillLive]
                    [random.random_range(0..3)],
            }
        };
        (0..classes).map(class).collect()
    };
    (0..number).map(&mut function).collect()
}

/// A run of the program: what a sampler of this period sees of it; everything at a period of 1.
fn run(program: &Program, period: u64, random: &mut StdRng) -> Profile {
    run_in_phases(program, &[(period, 1.0)], random)
}

/// The same with a period for each part of the run. The heap counts its blocks.
pub(crate) fn run_in_phases(
    program: &Program,
    phases: &[(u64, f64)],
    random: &mut StdRng,
) -> Profile {
    let period = phases[0].0;
    let distances = match period {
        1 => Distances::Every,
        _ => Distances::Exponential,
    };
    let setup = Synthetic {
        period,
        distances,
        ..Synthetic::default()
    };
    let mut profile = Profile::empty(setup.meta());
    profile.complete = true;
    // The first phase is the header's. The clock has a sampling, too.
    let mut parts = vec![(SamplingId::default(), phases[0].1)];
    for &(period, share) in &phases[1..] {
        parts.push((SamplingId(profile.samplings.len() as u32), share));
        let first = profile.samplings[0];
        profile.samplings.push(Sampling { period, ..first });
    }
    let blocks = |of: &Objects| of.size.next_multiple_of(16) as f64 * of.count;
    profile.counted = Some(program.iter().flatten().map(blocks).sum::<f64>() as u64);
    profile.types.push(TypeNames {
        name: "thing".to_owned(),
        native: String::new(),
    });
    for (number, function) in (0..).zip(program) {
        profile.functions.push(Function {
            name: format!("function_{number}"),
            file: format!("/app/module_{}.py", number % 10),
            first_line: number + 1,
        });
        profile.frames.push(Frame {
            function: number,
            line: number + 1,
            kind: FrameKind::Interpreted,
        });
        profile.stacks.push(StackNode {
            parent: NodeId::ROOT,
            frame: number,
        });
        let of_parts = parts
            .iter()
            .flat_map(|part| function.iter().map(move |objects| (part, objects)));
        for (&(sampling, share), objects) in of_parts {
            let shape = Shape {
                size: objects.size,
                block: objects.size.next_multiple_of(16),
                points: 1,
                sampling,
            };
            let p = profile.sampling(shape.sampling).weight(&shape).probability;
            let seen =
                Binomial::new((objects.count * share).round() as u64, p).expect("a probability");
            for _ in 0..seen.sample(random) {
                profile.samples.push(Sample {
                    time: Nanos(1000),
                    thread: ThreadId(0),
                    stack: NodeId(number + 1),
                    shape,
                    type_id: TypeId(1),
                    labels: Default::default(),
                    lifetime: objects.fate,
                    freed: (objects.fate != Lifetime::StillLive).then_some(Nanos(2000)),
                });
            }
        }
    }
    profile
}

/// The same program on another day: every function does more or less than usual, with this relative deviation.
fn day(program: &Program, deviation: f64, random: &mut StdRng) -> Program {
    let factor = LogNormal::new(-deviation * deviation / 2.0, deviation).expect("a deviation");
    let mut program = program.clone();
    for function in &mut program {
        let factor = factor.sample(random);
        for objects in function {
            objects.count = (objects.count * factor).round();
        }
    }
    program
}

pub(crate) fn diff(old: &[Profile], new: &[Profile]) -> Diff {
    Diff::of(old, new, &DiffOptions::default())
}

pub(crate) fn function(name: &str) -> usize {
    let number = name
        .strip_prefix("function_")
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no function of the program: {name}"))
}

/// In how many of `pairs` at least one row, and at least one total, is said to differ though nothing changed.
fn alarms(
    program: &Program,
    pairs: u32,
    runs: [usize; 2],
    periods: [u64; 2],
    deviation: f64,
) -> Vec<(Measure, u32)> {
    let mut found: Vec<(Measure, u32)> = Vec::new();
    for seed in 0..pairs {
        let mut random = StdRng::seed_from_u64(1000 + u64::from(seed));
        let mut side = |which: usize| -> Vec<Profile> {
            let run = |_| {
                run(
                    &day(program, deviation, &mut random),
                    periods[which],
                    &mut random,
                )
            };
            (0..runs[which]).map(run).collect()
        };
        let (old, new) = (side(0), side(1));
        let diff = diff(&old, &new);
        for &measure in &diff.measures {
            let is_wrong =
                |change: Option<&Change>| change.is_some_and(|change| change.significant);
            let rows = diff
                .rows
                .iter()
                .any(|row| is_wrong(row.changes.get(measure)));
            match found.iter_mut().find(|(known, _)| *known == measure) {
                Some((_, alarms)) => *alarms += u32::from(rows),
                None => found.push((measure, u32::from(rows))),
            }
        }
    }
    found
}

/// Alarms are not more frequent than is stated: 5 in 100, and three standard deviations for the number of pairs.
fn assert_few_alarms(what: &str, pairs: u32, alarms: &[(Measure, u32)]) {
    println!("{what}: alarms in {pairs} pairs: {alarms:?}");
    let stated = 0.05 * f64::from(pairs);
    let most = stated + 3.0 * (stated * 0.95).sqrt();
    for (measure, alarms) in alarms {
        assert!(f64::from(*alarms) <= most, "{what}: {measure:?} {alarms}");
    }
}

#[test]
fn pairs_without_a_change_raise_no_more_alarms_than_stated() {
    let program = program(120, 0.05..200.0, 12, 1);
    let alarms = alarms(&program, 200, [1, 1], [PERIOD, PERIOD], 0.0);
    assert_few_alarms("one run a side", 200, &alarms);
}

#[test]
fn nor_do_objects_of_very_different_sizes() {
    let program = program(120, 0.5..40.0, 18, 2);
    let alarms = alarms(&program, 200, [1, 1], [PERIOD, PERIOD], 0.0);
    assert_few_alarms("many sizes", 200, &alarms);
}

#[test]
fn nor_do_sides_with_different_periods() {
    let program = program(80, 0.1..60.0, 12, 3);
    let alarms = alarms(&program, 200, [1, 1], [PERIOD, PERIOD / 8], 0.0);
    assert_few_alarms("different periods", 200, &alarms);
}

#[test]
fn nor_do_several_runs() {
    let program = program(80, 0.05..100.0, 12, 4);
    let same = alarms(&program, 100, [3, 3], [PERIOD, PERIOD], 0.0);
    assert_few_alarms("three runs a side", 100, &same);
    let uneven = alarms(&program, 100, [4, 1], [PERIOD, PERIOD], 0.0);
    assert_few_alarms("four runs and one", 100, &uneven);
}

#[test]
fn nor_do_runs_that_differ_from_day_to_day() {
    let program = program(80, 1.0..400.0, 12, 5);
    let alarms = alarms(&program, 200, [3, 3], [PERIOD, PERIOD], 0.2);
    assert_few_alarms("runs that differ", 200, &alarms);
}

/// How often the intervals of the rows' differences hold, in 100.
struct Coverage {
    bytes: f64,
    allocations: f64,
    below: f64,
    above: f64,
}

/// Over `pairs` pairs of a program and one in which every function does more or less.
fn coverage(
    program: &Program,
    pairs: u32,
    runs: usize,
    periods: [u64; 2],
    deviation: f64,
) -> Coverage {
    let mut random = StdRng::seed_from_u64(77);
    let mut changed = program.clone();
    for function in &mut changed {
        let factor = 0.5 + 1.5 * random.random::<f64>();
        for objects in function {
            objects.count = (objects.count * factor).round().max(1.0);
        }
    }
    let (mut cases, mut held) = (0.0, [0.0; 2]);
    let (mut below, mut above) = (0.0, 0.0);
    for seed in 0..pairs {
        let mut random = StdRng::seed_from_u64(5000 + u64::from(seed));
        let mut side = |program: &Program, period: u64| -> Vec<Profile> {
            let run = |_| run(&day(program, deviation, &mut random), period, &mut random);
            (0..runs).map(run).collect()
        };
        let (old, new) = (side(program, periods[0]), side(&changed, periods[1]));
        let diff = diff(&old, &new);
        let mut rows: Vec<Option<&nthbyte_report::diff::DiffRow>> = vec![None; program.len()];
        for row in &diff.rows {
            rows[function(&row.name)] = Some(row);
        }
        for (number, row) in rows.iter().enumerate() {
            cases += 1.0;
            let truth = [bytes, allocations].map(|of| of(&changed[number]) - of(&program[number]));
            // A function without samples is in no row; it is not said that it did not change.
            let Some(row) = row else {
                held = held.map(|held| held + 1.0);
                continue;
            };
            let differences =
                [Measure::Bytes, Measure::Allocations].map(|of| row.changes[of].difference);
            for ((held, truth), found) in held.iter_mut().zip(truth).zip(differences) {
                *held += f64::from(u8::from(found.low <= truth && truth <= found.high));
            }
            below += f64::from(u8::from(truth[0] < differences[0].low));
            above += f64::from(u8::from(truth[0] > differences[0].high));
        }
    }
    Coverage {
        bytes: 100.0 * held[0] / cases,
        allocations: 100.0 * held[1] / cases,
        below: 100.0 * below / cases,
        above: 100.0 * above / cases,
    }
}

fn assert_coverage(what: &str, found: &Coverage) {
    let Coverage {
        bytes,
        allocations,
        below,
        above,
    } = found;
    let report = format!(
        "{what}: {bytes:.2} of 100 (below {below:.2}, above {above:.2}); allocations {allocations:.2}"
    );
    println!("{report}");
    assert!((93.0..=97.0).contains(bytes), "{report}");
    // Few samples are of small objects, which are many: the limits allow for some that were missed.
    assert!((93.0..=98.0).contains(allocations), "{report}");
    assert!(*below < 4.0 && *above < 4.0, "{report}");
}

#[test]
fn intervals_hold_with_few_samples() {
    let found = coverage(&program(60, 3.0..20.0, 8, 6), 200, 1, [PERIOD, PERIOD], 0.0);
    assert_coverage("few samples", &found);
}

#[test]
fn intervals_hold_with_many_samples() {
    let found = coverage(
        &program(20, 20.0..1000.0, 12, 7),
        200,
        1,
        [PERIOD, PERIOD],
        0.0,
    );
    assert_coverage("many samples", &found);
}

#[test]
fn intervals_hold_with_different_periods() {
    let found = coverage(
        &program(40, 4.0..60.0, 10, 8),
        200,
        1,
        [PERIOD, PERIOD / 4],
        0.0,
    );
    assert_coverage("different periods", &found);
}

#[test]
fn intervals_hold_with_several_runs() {
    let found = coverage(
        &program(40, 5.0..100.0, 10, 9),
        200,
        3,
        [PERIOD, PERIOD],
        0.0,
    );
    assert_coverage("several runs", &found);
    let found = coverage(
        &program(40, 20.0..400.0, 10, 10),
        200,
        3,
        [PERIOD, PERIOD],
        0.15,
    );
    assert_coverage("runs that differ", &found);
}

/// One function of fifty allocates more, and it alone.
#[test]
fn the_function_that_changed_is_found() {
    let old = program(50, 2000.0..2001.0, 8, 11);
    let mut new = old.clone();
    for objects in &mut new[17] {
        objects.count = (objects.count * 1.3).round();
    }
    let mut found = 0;
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let (old, new) = (
            run(&old, PERIOD, &mut random),
            run(&new, PERIOD, &mut random),
        );
        let diff = diff(&[old], &[new]);
        assert_eq!(function(&diff.rows[0].name), 17);
        found += u32::from(diff.rows[0].changes[Measure::Bytes].significant);
        assert!(diff.significant_rows <= 2, "{}", diff.significant_rows);
    }
    // The difference is nine standard deviations.
    assert_eq!(found, 20);
}

#[test]
fn several_runs_find_what_one_cannot() {
    let old = program(50, 150.0..151.0, 8, 12);
    let mut new = old.clone();
    for objects in &mut new[17] {
        objects.count = (objects.count * 1.3).round();
    }
    let found = |runs: usize| {
        let one = |seed: u64| {
            let mut random = StdRng::seed_from_u64(seed);
            let mut side = |program: &Program| -> Vec<Profile> {
                (0..runs)
                    .map(|_| run(program, PERIOD, &mut random))
                    .collect()
            };
            let diff = diff(&side(&old), &side(&new));
            diff.significant_rows > 0 && function(&diff.rows[0].name) == 17
        };
        (0..20).filter(|&seed| one(seed)).count()
    };
    let (one, eight) = (found(1), found(8));
    println!("found by one run a side: {one} of 20, by eight: {eight}");
    assert!(one <= 8 && eight >= 19, "{one} {eight}");
}

#[test]
fn recorded_in_full_differences_are_exact() {
    let old = program(50, 0.01..0.02, 8, 13);
    let mut new = old.clone();
    new[17][0].count += 3.0;
    let mut random = StdRng::seed_from_u64(1);
    let diff = diff(&[run(&old, 1, &mut random)], &[run(&new, 1, &mut random)]);
    assert!(diff.exact);
    assert_eq!(
        (diff.significant_rows, function(&diff.rows[0].name)),
        (1, 17)
    );
    let change = &diff.rows[0].changes[Measure::Allocations];
    assert_eq!((change.difference.low, change.difference.high), (3.0, 3.0));
    assert_eq!(
        diff.totals[&Measure::Bytes].difference.estimate,
        3.0 * new[17][0].size as f64
    );
}

#[test]
fn tables_fit_and_obey_nothing() {
    let of = |seed| {
        let setup = Synthetic {
            samples: 5000,
            hostile: true,
            seed,
            ..Synthetic::default()
        };
        Profile::read(&setup.bytes()[..]).expect("a profile")
    };
    let (old, new) = ([of(1)], [of(2)]);
    for by in [By::Function, By::Line, By::File, By::Type] {
        let options = DiffOptions {
            by,
            ..DiffOptions::default()
        };
        let mut diff = Diff::of(&old, &new, &options);
        for measure in diff.measures.clone() {
            diff.sort(measure);
            for width in [60, 80, 100, 160] {
                let shown = diff.render(width);
                let widest = shown.lines().map(text::width).max();
                assert!(
                    widest <= Some(width),
                    "{by:?} {measure:?} {width}: {widest:?}"
                );
                assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
            }
        }
    }
}
