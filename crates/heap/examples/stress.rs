//! A long random run of the heap against its prediction: as `tests/prediction.rs`, for any number of operations.
//!
//!     cargo run --release -p nthbyte-heap --example stress -- --operations 1e9 --seed 1
//!
//! An operation is an allocation, a resize or a free; its contents and its samples are
//! checked. The first deviation ends the run with a panic that says what was expected.

#[path = "../tests/model/mod.rs"]
mod model;

use model::{Model, Operation};
use nthbyte_heap::HeapConfig;
use nthbyte_sampling::Random;

fn argument(name: &str, default: f64) -> f64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    match arguments.nth(1).map(|value| value.parse()) {
        None => default,
        Some(Ok(value)) => value,
        Some(Err(error)) => {
            eprintln!("stress: {name}: {error}");
            std::process::exit(2);
        }
    }
}

fn below(random: &mut Random, bound: u64) -> usize {
    (random.next_u64() % bound) as usize
}

/// As in Python programs, most requests are small.
fn size(random: &mut Random) -> usize {
    match below(random, 1000) {
        0..600 => below(random, 128),
        600..900 => below(random, 513),
        900..996 => below(random, 2100),
        _ => below(random, 100_000),
    }
}

/// The number of blocks stays near `wanted`, which changes with time, so that pages fill and empty.
fn operation(random: &mut Random, live: usize, wanted: usize) -> Operation {
    let domain = random.next_u64().is_multiple_of(2);
    let block = random.next_u64() as usize;
    let grow = if live < wanted { 60 } else { 40 };
    match below(random, 100_000) {
        0 => Operation::Start {
            period: match below(random, 10) {
                0 => 1,
                1..4 => 64 << below(random, 8),
                _ => 1 << (12 + below(random, 16)),
            },
            seed: random.next_u64(),
        },
        1 if below(random, 4) == 0 => Operation::Stop,
        1 => Operation::Diverge {
            number: random.next_u64(),
        },
        2 => Operation::Burst {
            size: size(random).min(2032),
            count: below(random, 3000),
        },
        3 => Operation::Sweep {
            step: 1 + below(random, 3),
        },
        4 if below(random, 8) == 0 => Operation::RemoteFree { block },
        5 | 6 => Operation::Period {
            period: 64 << below(random, 15),
            in_observer: below(random, 2) == 0,
        },
        choice => match choice % 100 {
            0..5 => Operation::Realloc {
                block,
                size: size(random),
                domain,
            },
            5..10 => Operation::Calloc {
                size: size(random),
                domain,
            },
            number if number < grow => Operation::Malloc {
                size: size(random),
                domain,
            },
            _ => Operation::Free { block, domain },
        },
    }
}

fn main() {
    let operations = argument("--operations", 1e7) as u64;
    let seed = argument("--seed", 1.0) as u64;
    let mut random = Random::new(seed);
    let mut model = Model::new(HeapConfig::default());
    let mut wanted = 1000;
    for number in 0..operations {
        if number % 100_000 == 0 {
            wanted = 1 << below(&mut random, 16);
            model.check_totals();
        }
        if number % 50_000_000 == 0 {
            println!("{number} operations, {} samples", model.samples);
        }
        let operation = operation(&mut random, model.live(), wanted);
        model.run(&operation);
    }
    let samples = model.samples;
    model.finish();
    println!("{operations} operations, {samples} samples predicted and taken, no deviation");
}
