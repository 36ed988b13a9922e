//! A program that writes a profile of itself: it counts the words of a text in two ways.
//!
//! ```text
//! cargo run --release --example words
//! nthbyte summary words.nthb
//! ```

use std::alloc::System;
use std::collections::HashMap;

use nthbyte_global_alloc::{Options, Sampled};

#[global_allocator]
static ALLOCATOR: Sampled<System> = Sampled::new(System);

const LINE: &str =
    "one in every n allocated bytes of a program is sampled, with the stack of its thread";
const ROUNDS: usize = 2_000;

/// Makes a `String` of each word.
#[inline(never)]
fn counts_of_copies(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    counts
}

/// Borrows the words from the text.
#[inline(never)]
fn counts_of_slices(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn main() -> std::io::Result<()> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "words.nthb".to_owned());
    let session = nthbyte_global_alloc::start(Options::new().output(path).every(16 << 10))?;
    let text = [LINE; 200].join(" ");
    for _ in 0..ROUNDS {
        assert_eq!(
            counts_of_copies(&text)["one"],
            counts_of_slices(&text)["one"]
        );
    }
    let outcome = session.stop();
    println!("{} samples", outcome.samples);
    Ok(())
}
