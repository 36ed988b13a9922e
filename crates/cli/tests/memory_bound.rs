//! What a command takes is in proportion to what it reads, for any file.

#[path = "../../../fuzz/allocator.rs"]
mod allocator;
#[path = "../../../fuzz/commands.rs"]
mod commands;
#[path = "../../../fuzz/crafted.rs"]
#[expect(dead_code, reason = "the fuzz target makes profiles of bytes")]
mod crafted;

use crafted::Crafted;
use nthbyte_profile::synthetic::Synthetic;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// Of a real profile the fixed part may be 300 MB; here a part that does not hide what grows.
const FLOOR: u64 = 2 << 20;

/// How many nodes there are with one sample: enough that a table too large for what it is made of passes the floor.
const NODES: u32 = 120_000;

/// How many samples there are.
const MANY: u32 = 20_000;

/// Tests of one process share the count of memory, so all are one.
#[test]
fn no_command_takes_more_than_in_proportion_to_the_events() {
    let single = Crafted {
        nodes: NODES,
        back: 1,
        ..Crafted::default()
    };
    let nested = Crafted {
        nodes: MANY,
        ..single
    };
    let shapes = [
        ("one sample below a deep stack", single),
        (
            "a deep stack of different functions",
            Crafted {
                functions_every: 1,
                ..single
            },
        ),
        (
            "a sample at each depth",
            Crafted {
                samples_every: 1,
                frees_every: 2,
                ..nested
            },
        ),
        (
            "a time sample at each depth",
            Crafted {
                samples_every: 1,
                is_time: true,
                ..nested
            },
        ),
        (
            "a sample in each of many functions",
            Crafted {
                back: 0,
                functions_every: 1,
                samples_every: 1,
                ..nested
            },
        ),
        (
            "another type and size each time",
            Crafted {
                back: 7,
                types: MANY,
                sizes: true,
                samples_every: 1,
                ..nested
            },
        ),
        (
            "blocks that may have taken the place of smaller ones",
            Crafted {
                sizes: true,
                samples_every: 1,
                frees_every: 1,
                ..nested
            },
        ),
        (
            "another thread and label set each time",
            Crafted {
                nodes: MANY / 2,
                back: 0,
                threads: MANY / 2,
                labels: MANY / 2,
                samples_every: 1,
                ..nested
            },
        ),
        (
            "collections",
            Crafted {
                nodes: 1,
                collections: 20 * MANY,
                ..nested
            },
        ),
        (
            "compositions",
            Crafted {
                nodes: 1,
                compositions: 20 * MANY,
                ..nested
            },
        ),
    ];
    let meta = Synthetic::default().meta();
    let mut too_much = Vec::new();
    for (what, shape) in shapes {
        let outcomes = commands::all(&shape.file(&meta)).into_iter();
        let outside = outcomes.filter(|outcome| !outcome.is_within(FLOOR));
        too_much.extend(outside.map(|outcome| format!("{what}: {outcome:?}")));
    }
    assert!(too_much.is_empty(), "{too_much:#?}");
}
