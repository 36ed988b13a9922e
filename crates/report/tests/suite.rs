//! A run of tests: whose each allocation is, and whether it is alive.

use nthbyte_profile::event::Nanos;
use nthbyte_profile::model::{Lifetime, Profile, Sample, SamplingId};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_profile::{Distances, Meta, Method, Reader, Source};
use nthbyte_report::suite::{Baseline, Builder, Conditions, Exact, Owner, RecordedProfile, Suite};
use proptest::prelude::*;

/// A profile in which each object is recorded: size, time of its allocation, time of its free.
fn exact(objects: &[(u64, u64, Option<u64>)]) -> Profile {
    let mut profile = Profile::empty(Meta {
        sources: Source::of_session(Method::CutFreeLists, Distances::Every, 1, None),
        ..Meta::default()
    });
    for &(size, time, freed) in objects {
        let sample = synthetic::sample(Nanos(time), size, SamplingId(0));
        let lifetime = match freed {
            Some(_) => Lifetime::Freed,
            None => Lifetime::StillLive,
        };
        profile.samples.push(Sample {
            lifetime,
            freed: freed.map(Nanos),
            ..sample
        });
    }
    profile.end = Nanos(1_000_000);
    profile
}

fn owners(count: usize) -> Vec<Owner> {
    let name = |number| Owner {
        name: format!("test {number}"),
        scope: None,
    };
    (0..count).map(name).collect()
}

fn turns(switches: &[(u64, i64)]) -> RecordedProfile {
    RecordedProfile {
        // The clock of the marks does not begin with the profile.
        clock: 5000,
        switches: switches
            .iter()
            .map(|&(at, owner)| (5000 + at, owner))
            .collect(),
        ..RecordedProfile::default()
    }
}

#[test]
fn a_peak_is_that_of_the_tests_own_objects() {
    // The second test begins while 100 bytes of the first one are alive, which are freed in the middle of it.
    let profile = exact(&[
        (100, 10, Some(30)),
        (8, 20, Some(25)),
        (8, 25, Some(31)),
        (8, 29, None),
    ]);
    let mut builder = Builder::new(owners(2));
    builder.add(&turns(&[(0, 0), (15, 1), (40, -1)]), &profile);
    let suite = builder.finish();
    let figure = |row: usize| {
        let row = &suite.rows[row];
        let figure = |of: Option<nthbyte_report::Estimate>| of.expect("it is known").estimate;
        (row.allocated.estimate, figure(row.peak), figure(row.left))
    };
    assert_eq!(figure(0), (100.0, 100.0, 0.0));
    // At 25, one object takes the place of another one.
    assert_eq!(figure(1), (24.0, 16.0, 8.0));
    assert_eq!(suite.rows[1].duration_nanos, 25);
}

#[test]
fn what_a_fixture_leaves_is_unknown_before_it_is_torn_down() {
    let profile = exact(&[(100, 10, None)]);
    let mut builder = Builder::new(owners(1));
    let recording = RecordedProfile {
        unfinished: vec![0],
        ..turns(&[(0, 0), (15, -1)])
    };
    builder.add(&recording, &profile);
    assert_eq!(builder.finish().rows[0].left, None);
}

/// The row of one test, as `nthbyte tests --json` writes it.
fn run(objects: &[(u64, u64, Option<u64>)]) -> Suite {
    let mut builder = Builder::new(owners(1));
    builder.add(&turns(&[(0, 0), (900, -1)]), &exact(objects));
    builder.finish()
}

#[test]
fn only_what_is_surely_larger_has_grown() {
    let before = run(&[(1 << 20, 10, Some(20)), (1 << 20, 30, None)]);
    let json = serde_json::to_string(&before).expect("JSON");
    let baseline: Baseline = serde_json::from_str(&json).expect("a baseline");
    let figures = |now: &Suite| -> Vec<&str> {
        now.since(&baseline)
            .grown
            .iter()
            .map(|growth| growth.figure)
            .collect()
    };
    assert!(figures(&before).is_empty());
    // By less than a tenth.
    assert!(
        figures(&run(&[
            (1 << 20, 10, Some(20)),
            (1 << 20, 30, None),
            (99_999, 40, Some(50))
        ]))
        .is_empty()
    );
    // It allocates more, but not at one time.
    let more = run(&[
        (1 << 20, 10, Some(20)),
        (1 << 20, 30, Some(40)),
        (1 << 20, 50, None),
    ]);
    assert_eq!(figures(&more), ["allocated"]);
    let higher = run(&[(3 << 20, 10, None)]);
    assert_eq!(figures(&higher), ["allocated", "peak"]);
    assert!(figures(&run(&[])).is_empty());
}

/// Under sampling, runs of one program are not called different more often than the rate allows.
#[test]
fn chance_is_no_growth() {
    let sampled = |seed| {
        let made_up = Synthetic {
            samples: 200,
            seed,
            ..Synthetic::default()
        };
        let profile = Profile::read(&made_up.bytes()[..]).expect("a profile");
        let mut builder = Builder::new(owners(20));
        let length = profile.end.0 / 20;
        let switches = (0..20).map(|at| (at * length, at as i64)).collect();
        builder.add(
            &RecordedProfile {
                switches,
                ..RecordedProfile::default()
            },
            &profile,
        );
        builder.finish()
    };
    let json = serde_json::to_string(&sampled(1)).expect("JSON");
    let baseline: Baseline = serde_json::from_str(&json).expect("a baseline");
    let grown: usize = (2..22)
        .map(|seed| sampled(seed).since(&baseline).grown.len())
        .sum();
    let compared = 20 * 40;
    assert!(grown * 20 <= compared, "{grown} of {compared}");
}

#[test]
fn what_every_call_leaves_is_its_leak() {
    // The first call fills a cache; the second and the third one leave 16 bytes each, and replace a block of 100.
    let objects = [
        (5000, 10, None),
        (100, 20, Some(120)),
        (16, 110, None),
        (100, 120, Some(220)),
        (16, 210, None),
        (100, 220, None),
    ];
    let profile = exact(&objects.map(|(size, at, freed): (u64, u64, Option<u64>)| {
        (size, at * 1000, freed.map(|at| at * 1000))
    }));
    let mut bytes = Vec::new();
    profile.write(&mut bytes, |_| ()).expect("written");
    let profile = Profile::read(&bytes[..]).expect("a profile");
    let conditions = Conditions {
        repetitions: vec![Nanos(100_000), Nanos(200_000)],
        ..Conditions::default()
    };
    let again = Reader::from_reader(&bytes[..]).expect("a profile");
    let found = Exact::of(&profile, again, &conditions).expect("readable");
    let leaks: Vec<(u64, u64)> = found
        .leaks
        .iter()
        .map(|leak| (leak.bytes, leak.blocks))
        .collect();
    assert_eq!(leaks, [(16, 1)]);
}

proptest! {
    /// A test that was recorded by itself: its figures are the events', in their order.
    #[test]
    fn a_test_alone_has_the_figures_of_its_events(seed in 0_u64..1000) {
        let made_up = Synthetic { samples: 300, seed, distances: Distances::Every, ..Synthetic::default() };
        let bytes = made_up.bytes();
        let profile = Profile::read(&bytes[..]).expect("a profile");
        let again = Reader::from_reader(&bytes[..]).expect("a profile");
        let conditions = Conditions { with_allocated: true, ..Conditions::default() };
        let exact = Exact::of(&profile, again, &conditions).expect("readable");
        let sizes = |keep: &dyn Fn(&Sample) -> bool| -> u64 {
            profile.samples.iter().filter(keep).map(|sample| sample.shape.size).sum()
        };
        prop_assert_eq!(exact.allocated, sizes(&|_| true));
        prop_assert_eq!(exact.left, sizes(&|sample| sample.freed.is_none()));
        prop_assert_eq!(exact.allocated_by.iter().map(|of| of.bytes).sum::<u64>(), exact.allocated);
        prop_assert_eq!(exact.allocated_by.iter().map(|of| of.blocks).sum::<u64>(), exact.allocations);
        prop_assert!(exact.left <= exact.peak && exact.peak <= exact.allocated);
        prop_assert_eq!(exact.at_peak.iter().map(|of| of.bytes).sum::<u64>(), exact.peak);
        // At no time of the file's clock is more alive than the peak, but for what was freed at the same time.
        let alive = |at: Nanos| sizes(&|sample| sample.time <= at && sample.freed.is_none_or(|freed| freed > at));
        prop_assert!(profile.samples.iter().all(|sample| alive(sample.time) <= exact.peak));
    }

    /// Every sample has one owner: rows, and what was outside of them, add up to the whole. Marks of a file that somebody has
    /// changed do no harm.
    #[test]
    fn rows_add_up(seed in 0_u64..1000, switches in prop::collection::vec((0_u64..2_000_000_000, -3_i64..9), 0..20)) {
        let made_up = Synthetic { samples: 300, seed, ..Synthetic::default() };
        let profile = Profile::read(&made_up.bytes()[..]).expect("a profile");
        let mut builder = Builder::new(owners(5));
        let recording = RecordedProfile { switches, ..RecordedProfile::default() };
        builder.add(&recording, &profile);
        builder.add(&recording, &profile);
        let suite = builder.finish();
        let rows: f64 = suite.rows.iter().map(|row| row.allocated.estimate).sum();
        let all = suite.allocated.estimate;
        prop_assert!((rows + suite.outside.estimate - all).abs() <= 1e-6 * all);
        prop_assert_eq!(suite.samples, 600);
        for row in &suite.rows {
            let peak = row.peak.map_or(0.0, |peak| peak.low);
            prop_assert!(peak <= 2.0 * row.allocated.high, "{row:?}");
        }
        prop_assert!(suite.render(80, 0).lines().all(|line| line.chars().count() <= 80));
    }
}
