//! The example: a Lisp that profiles itself.

#[path = "../examples/lisp/machine.rs"]
mod machine;
#[path = "../examples/lisp/profiler.rs"]
mod profiler;
#[path = "../examples/lisp/reader.rs"]
mod reader;

use std::collections::HashMap;

use machine::Machine;
use nthbyte_nursery::Settings;
use nthbyte_profile::Profile;
use nthbyte_sampling::{Distances, Period, Sampler};
use profiler::Profiler;

const GCBENCH: &str = include_str!("../examples/lisp/gcbench.lisp");

impl machine::Stack for () {
    fn enter(&mut self, _: usize) {}
    fn at(&mut self, _: u32) {}
    fn leave(&mut self) {}
}

fn result_of(source: &str, argument: i64) -> Option<i64> {
    let functions = reader::read(source).expect("a program");
    Machine::new(functions, Settings::default(), ()).main(argument)
}

fn profile(depth: i64, period: u64, distances: Distances, settings: Settings) -> (Profile, u64) {
    let functions = reader::read(GCBENCH).expect("a program");
    let profiler = Profiler::new(
        Vec::new(),
        "gcbench.lisp",
        &functions,
        &machine::types(),
        period,
        distances,
    );
    let mut machine = Machine::new(functions, settings, profiler.expect("memory is written to"));
    let period = Period::new(period).expect("a period");
    machine
        .heap
        .start_sampling(Sampler::new(period, distances, 1));
    assert_eq!(machine.main(depth), Some(1_000_000), "1000 squared");
    machine.heap.collect_minor();
    let allocated = machine.heap.statistics().allocated;
    let file = machine
        .heap
        .into_observer()
        .finish(allocated)
        .expect("memory is written to");
    (
        Profile::read(file.as_slice()).expect("a profile"),
        allocated,
    )
}

#[test]
fn programs_run() {
    assert_eq!(
        result_of("(define (main n) (if (< n 3) 5 (* n 2)))", 4),
        Some(8)
    );
    let sum =
        "(define (sum n) (let (all 0) (while (< 0 n) (set! all (+ all n)) (set! n (- n 1))) all))
               (define (main n) (+ (sum n) (sum 4)))";
    assert_eq!(result_of(sum, 100), Some(5060));
    let tree = "(define (three) 3)
                (define (main n) (let (v (vector n)) (do (vector-set! v 1 (node (three) 4))
                                                         (set-left! (vector-ref v 1) 7)
                                                         (+ (left (vector-ref v 1)) (right (vector-ref v 1))))))";
    assert_eq!(result_of(tree, 20_000), Some(11));
}

#[test]
fn errors_say_where() {
    for (source, expected) in [
        ("(define (f a)\n  b)", "line 2: b is not defined"),
        ("(define (f) (g 1))", "line 1: g is not defined"),
        ("(define (f) (+ 1))", "line 1: + takes 2 operands"),
        ("(define (f) 1", "line 1: this ( is not closed"),
        ("(f))", "line 1: one ) too many"),
    ] {
        assert_eq!(reader::read(source).err().as_deref(), Some(expected));
    }
}

/// Every allocation is recorded: what the profile has is what the heap counted, by function, type and fate.
#[test]
fn a_profile_of_every_allocation_is_exact() {
    let settings = Settings {
        nursery: 64 << 10,
        ..Settings::default()
    };
    let (profile, allocated) = profile(6, 1, Distances::Every, settings);
    assert_eq!(
        profile
            .samples
            .iter()
            .map(|sample| sample.shape.size)
            .sum::<u64>(),
        allocated
    );
    let mut nodes = HashMap::new();
    for sample in profile.samples.iter() {
        let innermost = profile.stack(sample.stack).next().expect("a stack");
        let name = profile.functions[innermost.function as usize].name.as_str();
        *nodes.entry(name).or_insert(0) += u64::from(sample.shape.size == 32);
    }
    // For each even depth d up to 6, 254 / (2^(d+1) - 1) trees of each kind; and the long-lived tree.
    let size = |depth: u32| (1u64 << (depth + 1)) - 1;
    let rounds = |depth| 2 * size(6) / size(depth);
    let bottom_up: u64 = [4, 6]
        .iter()
        .map(|&depth| rounds(depth) * size(depth))
        .sum();
    assert_eq!(nodes["bottom-up"], bottom_up);
    let all: u64 = nodes.values().sum();
    assert_eq!(all, 2 * bottom_up + size(6));
}

/// Fixed distances: as many sample points as periods fit into what was allocated.
#[test]
fn fixed_distances_count_the_bytes() {
    let settings = Settings {
        nursery: 32 << 10,
        ..Settings::default()
    };
    for period in [1 << 10, 1 << 17] {
        let (profile, allocated) = profile(8, period, Distances::Fixed, settings);
        let points: u64 = profile
            .samples
            .iter()
            .map(|sample| u64::from(sample.shape.points))
            .sum();
        assert_eq!(points, allocated / period);
    }
}
