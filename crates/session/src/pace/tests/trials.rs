//! What samples cost where no clock sees it.

use super::programs::{Phase, Program};
use crate::pace::{FIRST_PERIOD, Kind, Pace, Periods};

fn program(seed: u64) -> Program {
    let mut program = Program::new(Pace::new(true, FIRST_PERIOD));
    program.seed = seed;
    program
}

fn has_found(program: &Program) -> bool {
    program.pace.trial.found() != [0.0; 2]
}

/// Large native blocks, each of which takes far longer when it is sampled.
const LARGE: Phase = Phase {
    native: 20e9,
    block: 2e6,
    hidden: [0.0, 1.5e6],
    ..Phase::busy(1e6)
};

#[test]
fn samples_that_double_the_time_of_a_program_are_found_within_seconds() {
    for seed in 1..20 {
        let mut program = program(seed);
        program.run(LARGE, 10.0);
        assert!(has_found(&program), "seed {seed}");
        let (paid, cpu) = (program.paid, program.cpu);
        program.run(LARGE, 60.0);
        let share = (program.paid - paid) / (program.cpu - cpu);
        assert!(share < 0.07, "seed {seed}: {share}");
        // The interpreter's memory is sampled as before.
        assert!(
            program.pace.decided.of(Kind::Own) <= 64 << 10,
            "seed {seed}"
        );
    }
}

#[test]
fn samples_that_take_a_tenth_of_a_program_are_found_within_minutes() {
    // 2,500 samples a second, of 40 µs each.
    let phase = Phase {
        hidden: [40e3, 0.0],
        ..Phase::busy(1e9)
    };
    for seed in 1..10 {
        let mut program = program(seed);
        program.run(phase, 480.0);
        assert!(has_found(&program), "seed {seed}");
        let (paid, cpu) = (program.paid, program.cpu);
        program.run(phase, 1800.0);
        let share = (program.paid - paid) / (program.cpu - cpu);
        assert!(share < 0.05, "seed {seed}: {share}");
    }
}

/// Blocks of which few are sampled: then each trial sees the whole difference.
#[test]
fn samples_that_take_most_of_the_time_are_found_in_seconds() {
    let phase = Phase {
        native: 3e9,
        block: 64e3,
        hidden: [0.0, 1e6],
        ..Phase::busy(1e6)
    };
    for seed in 1..20 {
        let mut program = program(seed);
        assert_eq!(program.pace.take_note(), None);
        program.run(phase, 3.0);
        assert!(has_found(&program), "seed {seed}");
        let note = program.pace.take_note();
        assert!(note.is_some_and(|note| note.contains("native memory")));
        assert_eq!(program.pace.take_note(), None);
        program.run(phase, 2.0);
        let (paid, cpu) = (program.paid, program.cpu);
        program.run(phase, 10.0);
        let share = (program.paid - paid) / (program.cpu - cpu);
        assert!(share < 0.015, "seed {seed}: {share}");
    }
}

/// Phases of different work, which no trial can tell from samples by itself.
#[test]
fn a_program_that_changes_is_not_taken_for_dear_samples() {
    let (mut found, mut looks) = (0, 0);
    for seed in 1..40 {
        let mut program = program(seed);
        while program.now < 120.0 {
            let own = 10.0_f64.powf(8.0 + 1.5 * program.uniform());
            let seconds = 0.02 + program.uniform().powi(3);
            program.run(Phase::busy(own), seconds);
            looks += 1;
            found += u32::from(has_found(&program));
        }
        let cheap = program.pace.trial.found()[0];
        assert!(cheap < 20_000.0, "seed {seed}: {cheap} ns");
    }
    assert!(
        f64::from(found) < 0.05 * f64::from(looks),
        "{found} of {looks}"
    );
}

/// Nor is a steady one.
#[test]
fn trials_of_a_cheap_program_find_nothing_and_take_few_samples() {
    let (mut found, mut samples) = (0, [0.0; 2]);
    for seed in 1..40 {
        let mut program = program(seed);
        program.run(Phase::busy(4e8), 120.0);
        found += u32::from(has_found(&program));
        samples[0] += program.samples;
        let mut without = Program::new(Pace::new(true, FIRST_PERIOD));
        without.seed = seed;
        while without.now < 120.0 {
            without.pace.trial = crate::pace::Trial::new();
            without.step(Phase::busy(4e8));
        }
        samples[1] += without.samples;
    }
    assert!(found <= 2, "{found}");
    assert!(samples[0] > 0.93 * samples[1], "{samples:?}");
}

/// What was found fades: a program whose samples are cheap again has short periods again.
#[test]
fn periods_become_short_again_when_samples_are_cheap_again() {
    let mut program = program(7);
    program.run(LARGE, 20.0);
    assert!(program.pace.decided.of(Kind::Native) >= 64 << 20);
    let cheap = Phase {
        native: 4e9,
        block: 100e3,
        hidden: [0.0; 2],
        ..LARGE
    };
    let before = program.pace.decided.of(Kind::Native);
    program.run(cheap, 2400.0);
    assert!(program.pace.decided.of(Kind::Native) < before / 16);
}

#[test]
fn a_trial_is_four_times_as_long_and_ends() {
    let mut program = program(3);
    let mut longer = 0.0;
    for _ in 0..2000 {
        let before = program.now;
        let [decided, present] = [program.pace.decided, program.pace.present];
        let [
            Periods([own, native]),
            Periods([present_own, present_native]),
        ] = [decided, present];
        assert!(present_native == native);
        assert!(present_own == own || present_own == 4 * own);
        let is_trial = present != decided;
        program.step(Phase::busy(3e8));
        longer += if is_trial { program.now - before } else { 0.0 };
    }
    let part = longer / program.now;
    assert!(part > 0.01 && part < 0.1, "{part}");
}
