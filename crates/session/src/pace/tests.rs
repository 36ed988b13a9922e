//! The controller: its decisions over time, without a session.

use proptest::prelude::*;

use super::*;

/// A program of a steady rate in bytes a second of CPU time, which is all time. Returns the samples a second of the
/// last second, the period, and the file's bytes at each whole minute.
fn run(rate: f64, seconds: f64, each: f64) -> (f64, u64, Vec<f64>) {
    let mut pace = Pace::new(true, FIRST_PERIOD);
    pace.last = Seen::default();
    let (mut now, mut file, mut samples) = (0.0_f64, 0.0, Vec::new());
    let mut minutes = Vec::new();
    while now < seconds {
        // As many samples as are taken until the next decision, in one step.
        let period = pace.period() as f64;
        let until_due = (pace.due as f64 / 1e9 - now).max(0.0) * rate / period;
        let taken = until_due.ceil().clamp(1.0, f64::from(pace.decide_at));
        now += taken * period / rate;
        file += taken * each;
        pace.taken += taken as u32;
        samples.push((now, taken));
        while (minutes.len() as f64 + 1.0) * 60.0 <= now {
            minutes.push(file);
        }
        let nanos = (now * 1e9) as u64;
        let seen = Seen {
            now: nanos,
            cpu: nanos,
            file: file as u64,
        };
        pace.decide(seen, 150);
    }
    let last = samples.iter().rev();
    let last = last
        .take_while(|(at, _)| *at > now - 1.0)
        .map(|(_, taken)| taken);
    (last.sum(), pace.period(), minutes)
}

/// 1000 + 1000 + 250 + 2 · 150 ns a sample.
const COST: f64 = 2550e-9;

#[test]
fn the_share_is_kept_at_each_rate() {
    for rate in [1e6, 2e7, 1e8, 1e9, 7e9, 4e10] {
        let (a_second, period, _) = run(rate, 5.0, 8.0);
        let share = a_second * COST;
        assert!(share <= SHARE, "{rate}: {share} at {period}");
        // A third of it at least, where the period is not the shortest.
        let is_shortest = period == FIRST_PERIOD;
        assert!(
            share >= SHARE / 3.0 || is_shortest,
            "{rate}: {share} at {period}"
        );
    }
}

/// A service that waits most of the time, and allocates much while it does not.
#[test]
fn the_period_of_a_service_that_waits_is_kept() {
    // Bytes a second, CPU seconds a second, and the period that follows.
    for (rate, cpu, expected) in [
        (70e6, 0.07, KEPT_PERIOD),
        (70e6, 0.01, KEPT_PERIOD),
        // Here it would take more than a thousandth of a processor.
        (1e9, 0.07, 4 << 20),
        // Nothing shorter for the same reason.
        (5e6, 0.001, KEPT_PERIOD),
        (70e6, 1.0, 64 << 10),
    ] {
        let mut pace = Pace::new(true, FIRST_PERIOD);
        pace.last = Seen::default();
        let mut now = 0.0;
        while now < 10.0 {
            let period = pace.period() as f64;
            let until_due = (pace.due as f64 / 1e9 - now).max(0.0) * rate / period;
            let taken = until_due.ceil().clamp(1.0, f64::from(pace.decide_at));
            now += taken * period / rate;
            pace.taken = taken as u32;
            let seen = Seen {
                now: (now * 1e9) as u64,
                cpu: (now * cpu * 1e9) as u64,
                file: 0,
            };
            pace.decide(seen, 150);
        }
        assert_eq!(pace.period(), expected, "{rate} {cpu}");
    }
}

#[test]
fn a_fast_program_has_another_period_after_its_first_samples() {
    let mut pace = Pace::new(true, FIRST_PERIOD);
    let spent = Spent::default();
    for number in 1..FIRST_SAMPLES {
        pace.count(Nanos(u64::from(number) * 2000));
        assert_eq!(pace.look(Nanos(u64::from(number) * 2000), &spent), None);
    }
    pace.taken += 1;
    pace.last = Seen::default();
    let nanos = 2_500_000; // 8 MiB in 2.5 ms
    let seen = Seen {
        now: nanos,
        cpu: nanos,
        file: 0,
    };
    // 0.0045 · 2.5 ms are 4.4 samples: 116 times too many, but that is not believed at once.
    assert_eq!(pace.decide(seen, 150), Some(128 << 10));
    assert_eq!(pace.decide_at, SAMPLES);
    let mut nanos = nanos;
    for expected in [Some(1 << 20), Some(4 << 20), None] {
        pace.taken = SAMPLES;
        nanos += u64::from(SAMPLES) * pace.period() * 10 / 67;
        let seen = Seen {
            now: nanos,
            cpu: nanos,
            file: 0,
        };
        assert_eq!(pace.decide(seen, 150), expected);
    }
}

#[test]
fn the_file_grows_by_ten_megabytes_an_hour_after_the_first_minutes() {
    for (rate, each) in [(1e8, 8.0), (2e9, 8.0), (2e9, 30.0)] {
        let (_, _, minutes) = run(rate, 3.0 * 3600.0, each);
        let start = minutes[9];
        assert!(
            start <= FILE_START + 10.0 * 60.0 * FILE_RATE + 1e5,
            "{rate}: {start}"
        );
        for from in 10..minutes.len() - 60 {
            let hour = minutes[from + 60] - minutes[from];
            assert!(hour <= 10e6, "{rate}, minute {from}: {hour}");
            assert!(hour >= 3e6, "{rate}, minute {from}: {hour}");
        }
    }
}

#[test]
fn the_period_is_a_power_of_two_within_its_bounds_and_rests() {
    for load in [1e-9, 0.01, 0.3, 0.4, 0.7, 1.1, 1.2, 50.0, 1e9] {
        let next = next_period(1 << 20, load, FIRST_PERIOD);
        assert!(next.is_power_of_two() && (FIRST_PERIOD..=LONGEST_PERIOD).contains(&next));
        assert_eq!(next == 1 << 20, (0.4..=1.1).contains(&load), "{load}");
    }
    // Not all the way at once.
    assert_eq!(next_period(1 << 20, 1e-3, FIRST_PERIOD), 128 << 10);
    assert_eq!(next_period(1 << 20, 1e3, FIRST_PERIOD), 8 << 20);
}

#[test]
fn a_fixed_period_stays() {
    let mut pace = Pace::new(false, 512);
    assert!((0..10_000).all(|at| !pace.count(Nanos(at * 1_000_000_000)) && !pace.count_end()));
    assert_eq!(pace.period(), 512);
}

/// A child begins with its parent's period, and may have one as short as its parent's first.
#[test]
fn the_period_of_a_child_can_become_as_short_as_the_first() {
    let mut parent = Pace::new(true, FIRST_PERIOD);
    parent.period = 1 << 20;
    let mut child = parent.of_child();
    assert_eq!(child.period(), 1 << 20);
    for second in 1..10 {
        child.taken = 1;
        let nanos = child.last.cpu + 1_000_000_000;
        let seen = Seen {
            now: second * 1_000_000_000,
            cpu: nanos,
            file: 0,
        };
        child.decide(seen, 150);
    }
    assert_eq!(child.period(), FIRST_PERIOD);
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
    assert_eq!(pace.end.0, 250);
    let _ = pace.begin_timed(5);
    pace.freed();
    pace.end_timed(Timed::End, 0, 5);
    assert!(pace.end.0 > 250);
    // Many ends at once share the time.
    let begun = pace.begin_timed(5);
    pace.end_timed(Timed::End, begun, 5 + 1000);
    assert!(pace.end.0 < 500);
}

/// A phase of a program: what it does for a second, and what its samples cost.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Bytes that are allocated a second.
    rate: f64,
    /// CPU seconds a second: less while the program waits, more with several threads.
    cpu: f64,
    /// Nanoseconds of a sample, of a free, and of a record.
    costs: [u32; 3],
    /// Bytes of the file for each sample.
    each: f64,
}

fn phases() -> impl Strategy<Value = Vec<(Phase, u32)>> {
    let costs = [50..20_000_u32, 20..5000, 20..5000];
    let phase = (4.0..11.0_f64, 0.01..4.0_f64, costs, 2.0..40.0_f64).prop_map(
        |(rate, cpu, costs, each)| Phase {
            rate: 10.0_f64.powf(rate),
            cpu,
            costs,
            each,
        },
    );
    proptest::collection::vec((phase, 1..20_u32), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The period stays within its bounds and changes in steps of bounded size, whatever the program does. Once a phase
    /// has lasted for some seconds, the counted cost is at most the share, or that of a processor up to the kept period; and
    /// the period is no longer than that needs, or than the file's budget needs.
    #[test]
    fn the_period_follows_and_stays_within_its_bounds(
        phases in phases(),
        shortest in prop_oneof![Just(FIRST_PERIOD), Just(SHORTEST_NATIVE_PERIOD)],
    ) {
        let mut pace = Pace::new(true, shortest);
        pace.last = Seen::default();
        let (mut now, mut cpu, mut file) = (0.0, 0.0, 0.0);
        for (phase, seconds) in phases {
            (pace.sample, pace.end) = (Mean(phase.costs[0]), Mean(phase.costs[1]));
            let counted = |cost: u32, most| f64::from(cost.min(most));
            let cost = OUTSIDE
                + counted(phase.costs[0], MOST_SAMPLE)
                + counted(phase.costs[1], MOST_END)
                + 2.0 * counted(phase.costs[2], MOST_RECORD);
            let end = now + f64::from(seconds);
            let (mut decisions, mut load) = (0, 0.0);
            while now < end {
                let before = pace.period();
                let until_due = (pace.due as f64 / 1e9 - now).max(0.0) * phase.rate / before as f64;
                let taken = until_due.ceil().clamp(1.0, f64::from(pace.decide_at));
                let took = taken * before as f64 / phase.rate;
                (now, cpu, file) = (now + took, cpu + took * phase.cpu, file + taken * phase.each);
                pace.taken = taken as u32;
                let seen = Seen {
                    now: (now * 1e9) as u64,
                    cpu: (cpu * 1e9) as u64,
                    file: file as u64,
                };
                let changed = pace.decide(seen, phase.costs[2]);
                let period = pace.period();
                prop_assert_eq!(changed, (period != before).then_some(period));
                prop_assert!(period.is_power_of_two());
                prop_assert!((shortest..=LONGEST_PERIOD).contains(&period));
                prop_assert!(period <= before * FASTEST && before <= period * FASTEST);
                decisions += 1;
                load = phase.rate / period as f64 * cost / 1e9 / phase.cpu;
            }
            // From the floor to the longest period takes four decisions.
            if decisions > 4 && pace.period() < LONGEST_PERIOD {
                let is_kept = load * phase.cpu <= 1.11 * SHARE_OF_PROCESSOR;
                prop_assert!(load <= SHARE || is_kept, "{load} {phase:?} {}", pace.period());
            }
            let is_limited_by_file = pace.file_left < FILE_START / 2.0
                || phase.rate / pace.period() as f64 * FILE_SAMPLE > pace.file_left / FILE_TIME / 4.0;
            if decisions > 4 && pace.period() > shortest && !is_limited_by_file {
                prop_assert!(load >= SHARE / 4.0, "{load} {phase:?} {}", pace.period());
            }
        }
    }
}
