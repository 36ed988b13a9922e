//! The periods that a program has.

use nthbyte_profile::event::Nanos;
use proptest::prelude::*;

use super::programs::{Phase, Program};
use crate::pace::cost::{MOST, Mean, OUTSIDE, Timed};
use crate::pace::tally::FASTEST;
use crate::pace::{
    AIM, COLD, FEWEST_SAMPLES, FILE_RATE, FILE_START, FIRST_PERIOD, FIRST_SAMPLES, Kind,
    LEAST_SAMPLES, LONGEST_PERIOD, Pace, Periods, SAMPLES, SHARE, SHARE_OF_PROCESSOR,
    SHARE_OF_WAITING, SHORTEST_NATIVE_PERIOD, START, Seen, Spent, Tally, WAITS,
};

/// 500 + 500 + 150 + 2 · 150 ns a sample.
const COST: f64 = 1450e-9;

fn program() -> Program {
    let mut program = Program::new(Pace::new(true, FIRST_PERIOD));
    program.pace.start_left = 0.0;
    program
}

#[test]
fn the_share_is_kept_at_each_rate() {
    for rate in [1e6, 2e7, 1e8, 1e9, 7e9, 4e10, 1e13] {
        let mut program = program();
        program.run(Phase::busy(rate), 5.0);
        let share = program.rate(Phase::busy(rate), 5.0) * COST;
        let period = program.pace.decided.of(Kind::Own);
        assert!(share <= SHARE, "{rate}: {share} at {period}");
        // A third of it at least, where the period is not the shortest.
        let is_shortest = period == FIRST_PERIOD;
        assert!(
            share >= SHARE / 3.0 || is_shortest,
            "{rate}: {share} at {period}"
        );
    }
}

/// Programs of a second, and the first second of all others, have more samples than the share.
#[test]
fn a_short_program_has_short_periods() {
    for (rate, seconds, most) in [
        (2e9, 0.3, 512 << 10),
        (5e9, 0.5, 1 << 20),
        (3e8, 1.0, 80 << 10),
    ] {
        let mut program = Program::new(Pace::new(true, FIRST_PERIOD));
        program.run(Phase::busy(rate), seconds);
        let period = program.pace.decided.of(Kind::Own);
        assert!(period <= most, "{rate}: {period}");
        let beyond = program.samples * COST - AIM * program.cpu;
        assert!(beyond <= 1.3 * START / 1e9, "{rate}: {beyond}");
    }
}

/// A service that waits most of the time.
#[test]
fn a_quiet_service_has_few_samples_and_at_least_six_a_second() {
    for (rate, cpu) in [
        (2.9e6, 0.003),
        (2.9e6, 0.03),
        (70e6, 0.01),
        (1e9, 0.07),
        (1e9, 0.2),
        (1.3e6, 0.0001),
    ] {
        let quiet = Phase {
            cpu,
            ..Phase::busy(rate)
        };
        let mut program = program();
        program.run(quiet, 30.0);
        let allowed = f64::max(FEWEST_SAMPLES, SHARE_OF_WAITING * cpu / (COLD / 1e9));
        for _ in 0..20 {
            let samples = program.rate(quiet, 5.0);
            let period = program.pace.decided.of(Kind::Own);
            assert!(
                samples >= 0.6 * allowed,
                "{rate} {cpu}: {samples} at {period}"
            );
            assert!(
                samples <= 1.6 * allowed,
                "{rate} {cpu}: {samples} at {period}"
            );
            assert!(samples * COST <= SHARE_OF_PROCESSOR || samples * COST <= SHARE * cpu);
        }
    }
}

/// From a process that waits to one that works, the samples become more, and never fewer.
#[test]
fn the_less_a_program_waits_the_more_samples_it_has() {
    let mut before = 0.0;
    for cpu in [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0] {
        let phase = Phase {
            cpu,
            ..Phase::busy(1e9)
        };
        let mut program = program();
        program.run(phase, 10.0);
        let samples = program.rate(phase, 10.0);
        assert!(samples >= 0.9 * before, "{cpu}: {samples} after {before}");
        before = samples;
    }
    assert!(before * COST >= SHARE / 3.0, "{before}");
}

/// A process with little to do, which does it all the time.
#[test]
fn samples_of_small_blocks_are_not_too_many() {
    // 179 a second are not too many.
    let mut program = program();
    let quiet = Phase {
        cpu: 0.8,
        ..Phase::busy(2.8 * 1048576.0)
    };
    program.run(quiet, 20.0);
    assert_eq!(program.pace.decided.of(Kind::Own), FIRST_PERIOD);
    assert!(program.samples > 3000.0);
}

/// After a burst, and after a burst that follows a quiet time, the period is what it was.
#[test]
fn the_period_is_short_again_after_a_burst() {
    let quiet = Phase {
        cpu: 0.8,
        ..Phase::busy(2e6)
    };
    let mut program = program();
    program.run(quiet, 10.0);
    assert_eq!(program.pace.decided.of(Kind::Own), FIRST_PERIOD);
    program.run(Phase::busy(5e9), 0.5);
    assert!((1 << 20..=2 << 20).contains(&program.pace.decided.of(Kind::Own)));
    program.run(quiet, 3.0);
    assert_eq!(program.pace.decided.of(Kind::Own), FIRST_PERIOD);
}

#[test]
fn a_fast_program_has_another_period_after_its_first_samples() {
    let mut pace = Pace::new(true, FIRST_PERIOD);
    let spent = Spent::default();
    for number in 1..FIRST_SAMPLES {
        pace.count(Nanos(u64::from(number) * 2000));
        let now = Nanos(u64::from(number) * 2000);
        assert_eq!(pace.look(now, &spent, false), None);
    }
    pace.taken += 1;
    pace.last = Seen::default();
    let seen = |nanos| Seen {
        now: nanos,
        cpu: nanos,
        file: 0,
        record: 150,
        is_crowded: false,
    };
    // 8 MiB in 2.5 ms. 63 samples were allowed: eight times too many, but that is not believed at once.
    let mut nanos = 2_500_000;
    assert_eq!(pace.decide(seen(nanos)).unwrap().of(Kind::Own), 128 << 10);
    assert_eq!(pace.decide_at, SAMPLES);
    for expected in [Some(384 << 10), None] {
        pace.taken = SAMPLES;
        nanos += u64::from(SAMPLES) * pace.period() * 10 / 67;
        assert_eq!(
            pace.decide(seen(nanos)).map(|to| to.of(Kind::Own)),
            expected
        );
    }
}

/// Native memory and the interpreter's do not take each other's samples.
#[test]
fn much_native_memory_leaves_the_interpreter_its_samples() {
    let mut program = program();
    let phase = Phase {
        native: 1e13,
        block: 16e6,
        ..Phase::busy(30e6)
    };
    program.run(phase, 5.0);
    let Periods([own, native]) = program.pace.decided;
    assert!(own <= 32 << 10, "{own}");
    assert!(native >= 4 << 30, "{native}");
    // And back, although no native sample comes.
    program.run(Phase::busy(30e6), 5.0);
    assert_eq!(
        program.pace.decided.of(Kind::Native),
        SHORTEST_NATIVE_PERIOD
    );
}

#[test]
fn the_periods_are_longer_while_the_ring_is_crowded() {
    let mut program = program();
    program.run(Phase::busy(1e8), 3.0);
    let before = program.pace.decided.of(Kind::Own);
    let last = program.pace.last;
    program.pace.taken = 100;
    let seen = Seen {
        now: last.now + 100_000_000,
        cpu: last.cpu + 100_000_000,
        is_crowded: true,
        ..last
    };
    program.pace.decide(seen);
    assert!(program.pace.decided.of(Kind::Own) >= 2 * before);
}

#[test]
fn the_file_grows_by_ten_megabytes_an_hour_after_the_first_minutes() {
    for (rate, each) in [(1e8, 8.0), (2e9, 8.0), (2e9, 10.0)] {
        let phase = Phase {
            each,
            ..Phase::busy(rate)
        };
        let mut program = program();
        let mut minutes = Vec::new();
        for minute in 1..=180 {
            program.run(phase, f64::from(minute) * 60.0 - program.now);
            minutes.push(program.file);
        }
        let start = minutes[9];
        assert!(
            start <= FILE_START + 600.0 * FILE_RATE + 1e5,
            "{rate}: {start}"
        );
        // The first minutes are spent at what the CPU time buys.
        let least = (0.3 * AIM / COST * 180.0 * each).min(0.5 * FILE_START);
        assert!(minutes[2] >= least, "{rate}: {}", minutes[2]);
        for from in 25..minutes.len() - 60 {
            let hour = minutes[from + 60] - minutes[from];
            assert!(hour <= 10e6, "{rate}, minute {from}: {hour}");
            assert!(hour >= 3e6, "{rate}, minute {from}: {hour}");
        }
    }
}

/// A power of two, or a quarter, half or three quarters of the way to the next.
fn is_step(period: u64) -> bool {
    period.is_power_of_two() || period.is_multiple_of(period.next_power_of_two() / 8)
}

#[test]
fn a_period_is_a_step_within_its_bounds_and_rests() {
    let next = |samples, allowed| {
        let taken = Tally { samples, allowed };
        taken.next_period(1 << 20, FIRST_PERIOD)
    };
    for load in [1e-9, 0.01, 0.3, 0.6, 0.69, 0.71, 0.9, 1.09, 1.2, 50.0, 1e9] {
        let next = next(load * 1e6, 1e6);
        assert!(is_step(next) && (FIRST_PERIOD..=LONGEST_PERIOD).contains(&next));
        assert_eq!(next == 1 << 20, (0.7..=1.1).contains(&load), "{load}");
        // What it leads to rests, where it may be had at once.
        let then = load * (1 << 20) as f64 / next as f64;
        assert!(
            (0.7..=1.1).contains(&then) || !(0.2..=8.0).contains(&load),
            "{load}: {then}"
        );
    }
    // Not all the way at once.
    assert_eq!(next(1e3, 1e6), 128 << 10);
    assert_eq!(next(1e6, 1e3), 8 << 20);
    // Few samples may be so by chance.
    assert_eq!(next(23.0, 18.0), 1 << 20);
    assert_eq!(next(9.0, 18.0), 1 << 20);
    assert_eq!(next(0.0, 18.0), 128 << 10);
    let longest = Tally {
        samples: 1e6,
        allowed: 1.0,
    };
    assert_eq!(
        longest.next_period(LONGEST_PERIOD, FIRST_PERIOD),
        LONGEST_PERIOD
    );
}

#[test]
fn a_fixed_period_stays() {
    let mut pace = Pace::new(false, 512);
    assert!((0..10_000).all(|at| !pace.count(Nanos(at * 1_000_000_000)) && !pace.count_end()));
    assert_eq!(pace.period(), 512);
}

/// A child begins with its parent's decided period, and may have one as short as its parent's first.
#[test]
fn the_period_of_a_child_can_become_as_short_as_the_first() {
    let mut parent = Pace::new(true, FIRST_PERIOD);
    parent.decided.0[0] = 1 << 20;
    parent.present = parent.decided.with_longer(Some(Kind::Own), 4);
    let child = parent.of_child();
    assert_eq!(child.period(), 1 << 20);
    assert_eq!(child.native_period(), parent.decided.of(Kind::Native));
    let mut child = Program::new(child);
    child.run(Phase::busy(1.0), 2.0);
    assert_eq!(child.pace.period(), FIRST_PERIOD);
}

#[test]
fn without_an_interpreter_all_memory_is_native() {
    let mut program = Program::new(Pace::new(true, SHORTEST_NATIVE_PERIOD));
    let phase = Phase {
        native: 1e10,
        ..Phase::busy(0.0)
    };
    program.run(phase, 5.0);
    let share = program.rate(phase, 5.0) * COST;
    assert!((SHARE / 3.0..=SHARE).contains(&share), "{share}");
}

#[test]
fn a_mean_follows_its_values_and_no_single_one() {
    let mut mean = Mean(1000);
    mean.add(1_000_000);
    assert_eq!(mean.0, 1375);
    (0..60).for_each(|_| mean.add(400));
    assert!((395..=408).contains(&mean.0), "{}", mean.0);
    let mut from_nothing = Mean(1);
    (0..60).for_each(|_| from_nothing.add(0));
    assert_eq!(from_nothing.0, 1);
}

#[test]
fn a_free_is_timed_and_a_collection_is_not() {
    let mut pace = Pace::new(true, FIRST_PERIOD);
    let begun = pace.begin_timed(5);
    pace.end_timed(Timed::End, begun, 6);
    assert_eq!(pace.cost.end.0, 150);
    let _ = pace.begin_timed(5);
    pace.freed();
    pace.end_timed(Timed::End, 0, 5);
    assert!(pace.cost.end.0 > 150);
    // Many ends at once share the time.
    let begun = pace.begin_timed(5);
    pace.end_timed(Timed::End, begun, 5 + 1000);
    assert!(pace.cost.end.0 < 300);
}

/// The first samples, whose stacks are new, do not count for more than samples usually cost; later ones do.
#[test]
fn dear_samples_count_in_full_after_the_first_ones() {
    let mut program = program();
    program.pace.cost.sample = Mean(15_000);
    let phase = Phase::busy(1e9);
    program.run(phase, 0.5);
    let early = program.rate(phase, 0.1);
    assert!(early > 1000.0, "{early}");
    program.run(phase, 10.0);
    let late = program.rate(phase, 10.0);
    assert!(late * 16e-6 <= SHARE, "{late}");
}

/// A phase, its seconds, and the nanoseconds of a sample, of a free, and of a record.
fn phases() -> impl Strategy<Value = Vec<(Phase, u32, [u32; 3])>> {
    let costs = [50..15_000_u32, 20..1500, 20..800];
    let phase = (
        (4.0..11.0_f64, 4.0..11.0_f64),
        (3.0..7.0_f64, 0.01..4.0_f64),
        2.0..40.0_f64,
    );
    let phase = phase.prop_map(|((own, native), (block, cpu), each)| Phase {
        own: 10.0_f64.powf(own),
        native: 10.0_f64.powf(native),
        block: 10.0_f64.powf(block),
        cpu,
        hidden: [0.0; 2],
        each,
    });
    proptest::collection::vec((phase, 1..20_u32, costs), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The periods stay within their bounds and change in steps of bounded size, whatever the program does. Once a phase
    /// has lasted for some seconds, the counted cost is at most the share, or the cost of the samples that are always allowed;
    /// and the samples are no fewer than that allows, or than the file's budget does.
    #[test]
    fn the_periods_follow_and_stay_within_their_bounds(phases in phases()) {
        let mut program = program();
        let shortest = program.pace.shortest;
        for (phase, seconds, costs) in phases {
            let end = program.now + f64::from(seconds);
            program.record = costs[2];
            let mut decisions = 0;
            while program.now < end {
                (program.pace.cost.sample, program.pace.cost.end) = (Mean(costs[0]), Mean(costs[1]));
                let before = program.pace.present;
                let has_changed = program.step(phase);
                let present = program.pace.present;
                prop_assert_eq!(has_changed, present != before);
                for kind in Kind::ALL {
                    let [before, present] = [before.of(kind), present.of(kind)];
                    prop_assert!(is_step(present));
                    prop_assert!((shortest.of(kind)..=LONGEST_PERIOD).contains(&present));
                    let most = 4 * FASTEST;
                    prop_assert!(present <= before * most && before <= present * most);
                }
                decisions += 1;
            }
            let cost = OUTSIDE
                + f64::from(costs[0].min(MOST[0]))
                + f64::from(costs[1].min(MOST[1]))
                + 2.0 * f64::from(costs[2].min(MOST[2]));
            program.run(phase, 2.0);
            let is_settled = program.pace.cost.of_sample(costs[2]) == cost;
            let (file, cpu) = (program.pace.file_left, program.cpu);
            let (samples, now) = (program.samples, program.now);
            while program.now < now + 2.0 {
                (program.pace.cost.sample, program.pace.cost.end) = (Mean(costs[0]), Mean(costs[1]));
                program.step(phase);
            }
            let rate = (program.samples - samples) / (program.now - now);
            let share = rate * cost / 1e9 * (program.now - now) / (program.cpu - cpu);
            if decisions > 20 && is_settled {
                let is_least = rate <= 1.4 * LEAST_SAMPLES;
                prop_assert!(share <= 1.3 * SHARE || is_least, "{share} {rate} {phase:?}");
            }
            let Periods([own, native]) = program.pace.decided;
            let is_limited_by_file = file < FILE_START / 2.0 || rate > file / 1200.0 / 8.0;
            let is_short = [own, native] == shortest.0;
            if decisions > 20 && !is_short && !is_limited_by_file {
                let least = match phase.cpu > WAITS.1 {
                    true => LEAST_SAMPLES,
                    false => FEWEST_SAMPLES,
                };
                prop_assert!(
                    share >= SHARE / 6.0 || rate >= least / 4.0,
                    "{share} {rate} {phase:?} {:?}", program.pace.decided
                );
            }
        }
    }
}
