//! 32,768 numbers in a row, as an array that a fold fills, and as a vector that is collected: `numbers array|vector TIMES`.
//!
//! The two functions of "Allocations are good, actually": the first allocates nothing, the second allocates once.

use std::env::args;
use std::hint::black_box;

const LENGTH: usize = 32 * 1024;

#[unsafe(no_mangle)]
#[inline(never)]
fn array() -> [u32; LENGTH] {
    (0..)
        .zip(0..LENGTH)
        .fold([0; LENGTH], |mut filled, (number, index)| {
            filled[index] = number;
            filled
        })
}

#[unsafe(no_mangle)]
#[inline(never)]
fn vector() -> Vec<u32> {
    (0..).take(LENGTH).collect()
}

fn main() {
    let (kind, times) = (args().nth(1), args().nth(2));
    let times: u32 = times.and_then(|text| text.parse().ok()).unwrap_or(1);
    for _ in 0..times {
        match kind.as_deref() {
            Some("array") => drop(black_box(array())),
            Some("vector") => drop(black_box(vector())),
            _ => panic!("usage: numbers array|vector TIMES"),
        }
    }
}
