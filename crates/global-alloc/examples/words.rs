//! A program that writes a profile of itself. It collects the words of a text in two ways: copied, and borrowed from it.
//!
//! ```text
//! cargo run -p nthbyte-global-alloc --example words
//! nthbyte summary words.nthb
//! ```
//!
//! `NTHBYTE_OUTPUT` and `NTHBYTE_EVERY` in the environment choose another profile and another period.

use std::alloc::System;
use std::io;

use nthbyte_global_alloc::{Options, Sampled};

#[global_allocator]
static ALLOCATOR: Sampled<System> = Sampled::new(System);

const LINE: &str = "one in every n allocated bytes is sampled with the stack of its thread ";
const LINES: usize = 200;

#[inline(never)]
fn copied(text: &str, words: usize) -> Vec<String> {
    let mut found = Vec::with_capacity(words);
    for word in text.split_whitespace() {
        found.push(word.to_owned());
    }
    found
}

#[inline(never)]
fn borrowed(text: &str, words: usize) -> Vec<&str> {
    let mut found = Vec::with_capacity(words);
    for word in text.split_whitespace() {
        found.push(word);
    }
    found
}

fn main() -> io::Result<()> {
    let session = match nthbyte_global_alloc::start_from_env()? {
        Some(session) => session,
        None => nthbyte_global_alloc::start(Options::new().output("words.nthb").every(16 << 10))?,
    };
    let rounds = std::env::args()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or(1000_u64);
    let text = LINE.repeat(LINES);
    let words = text.split_whitespace().count();
    for _ in 0..rounds {
        assert_eq!(copied(&text, words), borrowed(&text, words));
    }
    let path = session.path().display().to_string();
    let outcome = session.stop();
    println!("{} samples in {path}", outcome.samples);
    Ok(())
}
