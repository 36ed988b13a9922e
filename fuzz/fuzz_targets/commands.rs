//! Memory, steps and output of each command, for files that no program writes: `cargo +nightly fuzz run -s none commands`, since no
//! address sanitizer is needed, and all commands run on each file. A large seed is `cargo fuzz run commands FILE.nthb`.
#![no_main]

#[path = "../allocator.rs"]
mod allocator;
#[path = "../commands.rs"]
mod commands;
#[path = "../crafted.rs"]
mod crafted;

use nthbyte_profile::{MAGIC, Reader};

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// What a command may take without a profile: little, so that it does not hide what grows.
const FLOOR: u64 = 2 << 20;

/// There is at most so much of anything in a made-up file: enough to pass the floor, and little enough to try many files.
const MOST: u32 = 1 << 13;

/// The header of a profile in which nothing happened.
const HEADER: &[u8] = include_bytes!("../corpus/file/empty");

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let made_up;
    let file = if data.starts_with(&MAGIC) {
        data
    } else {
        let reader = Reader::from_reader(HEADER).expect("the header is right");
        made_up = crafted::Crafted::of(data, MOST).file(reader.meta());
        &made_up
    };
    for outcome in commands::all(file) {
        assert!(outcome.is_within(FLOOR), "{outcome:?}");
    }
});
