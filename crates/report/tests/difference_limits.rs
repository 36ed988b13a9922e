//! Does `--fail-on` fail as rarely as is stated, and does a comparison know what it could have found?

use nthbyte_profile::Profile;
use nthbyte_report::diff::{Diff, DiffOptions, Measure};
use rand::{SeedableRng, rngs::StdRng};

use crate::difference::{Objects, PERIOD, Program, function, program, run_in_phases};

/// A short period at first, then longer ones, as by default; and one that stays.
const CHANGING: &[(u64, f64)] = &[(16 << 10, 0.02), (64 << 10, 0.2), (256 << 10, 0.78)];
const FIXED: &[(u64, f64)] = &[(PERIOD / 4, 1.0)];

fn grown(program: &Program, factor: f64) -> Program {
    let more = |objects: &Objects| Objects {
        count: (objects.count * factor).round(),
        ..*objects
    };
    let functions = program.iter();
    functions
        .map(|function| function.iter().map(more).collect())
        .collect()
}

/// Pairs of sides of so many runs each. `is_counted`: whether the heap has counted.
fn pairs(
    [old, new]: [&Program; 2],
    number: u64,
    runs: usize,
    phases: &[(u64, f64)],
    is_counted: bool,
) -> impl Iterator<Item = Diff> {
    let limits = ["+5%", "function_3:+5%"];
    let options = DiffOptions {
        limits: limits.map(|limit| limit.parse().expect("a limit")).to_vec(),
        ..DiffOptions::default()
    };
    (0..number).map(move |seed| {
        let mut random = StdRng::seed_from_u64(9000 + seed);
        let mut side = |program: &Program| -> Vec<Profile> {
            let mut one = || {
                let mut profile = run_in_phases(program, phases, &mut random);
                profile.counted = profile.counted.filter(|_| is_counted);
                profile
            };
            (0..runs).map(|_| one()).collect()
        };
        Diff::of(&side(old), &side(new), &options)
    })
}

/// How many of these pairs fail: for the total, for one function, and for any call of the total a difference.
fn failed(diffs: impl Iterator<Item = Diff>) -> [u32; 3] {
    let mut failed = [0; 3];
    for diff in diffs {
        let is_different = diff.totals[&Measure::Bytes].significant;
        let limits = diff.check().expect("a total and a row").into_iter();
        let of = limits.map(|limit| limit.exceeded).chain([is_different]);
        for (sum, fails) in failed.iter_mut().zip(of) {
            *sum += u32::from(fails);
        }
    }
    failed
}

/// The number of null pairs of each kind.
const PAIRS: u64 = 300;

#[test]
fn what_did_not_change_hardly_ever_fails() {
    let same = program(8, 2.0..8.0, 8, 14);
    for (what, phases) in [("changing", CHANGING), ("fixed", FIXED)] {
        for (runs, is_counted) in [(1, true), (1, false), (3, true), (3, false)] {
            // What three runs add for a counted total is tested with few.
            let number = if runs == 3 && is_counted { 30 } else { PAIRS };
            let found = failed(pairs([&same, &same], number, runs, phases, is_counted));
            println!("{what} period, {runs} runs, counted {is_counted}: {found:?} of {number}");
            let [total, row, is_different] = found;
            // 5 in 100 are stated.
            assert!(total <= 15 && row <= 15 && is_different <= 15, "{found:?}");
            if is_counted {
                assert_eq!((total, is_different), (0, 0));
            }
        }
    }
}

#[test]
fn growth_at_the_limit_fails_in_one_case_of_forty_and_far_above_always() {
    let old = program(30, 20.0..60.0, 8, 14);
    for is_counted in [true, false] {
        let of = |new: &Program, number| {
            let [total, ..] = failed(pairs([&old, new], number, 1, FIXED, is_counted));
            total
        };
        let (at_limit, far) = (of(&grown(&old, 1.05), 100), of(&grown(&old, 1.3), 25));
        println!("counted {is_counted}: {at_limit} of 100 at the limit, {far} of 25 far above");
        assert!(at_limit <= 7, "{at_limit}");
        assert_eq!(far, 25);
        if is_counted {
            assert_eq!(of(&grown(&old, 1.06), 25), 25);
        }
    }
}

/// Two sizes share the blocks of one size, so what was asked for of them is a matter of samples. The count is not.
#[test]
fn a_count_of_blocks_is_compared_as_it_is() {
    let objects = |size| Objects {
        size,
        count: 4e5,
        fate: nthbyte_profile::model::Lifetime::DiedYoung,
    };
    let same: Program = vec![vec![objects(40), objects(48)]];
    for diff in pairs([&same, &same], 20, 1, CHANGING, true) {
        let total = &diff.totals[&Measure::Bytes];
        assert_eq!(
            (total.old.estimate, total.difference.estimate),
            (2.0 * 4e5 * 48.0, 0.0)
        );
        assert!(!total.significant && diff.old.bytes_counted);
        assert_eq!(diff.old.bytes_allocated, 38_400_000);
    }
}

/// In how many of 40 pairs the function that grew is found.
fn found(old: &Program, growth: f64, phases: &[(u64, f64)]) -> usize {
    let mut new = old.clone();
    for objects in &mut new[17] {
        objects.count = (objects.count * (1.0 + growth)).round();
    }
    let diffs = pairs([old, &new], 40, 1, phases, true);
    diffs
        .filter(|diff| diff.significant_rows > 0 && function(&diff.rows[0].name) == 17)
        .count()
}

#[test]
fn what_could_have_been_found_is_found_in_half_of_all_cases() {
    let old = program(25, 60.0..61.0, 8, 12);
    for (what, phases) in [("changing", CHANGING), ("fixed", FIXED)] {
        let first = pairs([&old, &old], 1, 1, phases, true).next();
        let said = first.expect("a pair").sensitivity[&Measure::Bytes];
        let growth = said.growth.expect("a growth");
        let (every, finer) = said.with_period.expect("a shorter period");
        let [much_less, less, at, more, at_finer] = [
            found(&old, growth / 3.0, phases),
            found(&old, growth / 1.5, phases),
            found(&old, growth, phases),
            found(&old, growth * 1.5, phases),
            found(&old, finer, &[(every, 1.0)]),
        ];
        println!(
            "{what}: {growth:.2} is found in {at} of 40, two thirds in {less}, a third in {much_less}, 1.5 times in {more}; every {every}: {finer:.2} in {at_finer}"
        );
        assert!((8..=32).contains(&at), "{at}");
        assert!(much_less <= 4 && less < at && more >= 30, "{less} {more}");
        assert!((8..=32).contains(&at_finer), "{at_finer}");
        assert!(said.with_three_runs.expect("three runs") < growth);
    }
}
