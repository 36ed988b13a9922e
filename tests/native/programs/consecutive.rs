//! A list of consecutive numbers, in two ways: folded into an array, which needs no allocation, and collected into a
//! `Vec`, which needs one of 128 KiB.

use std::hint::black_box;

const COUNT: usize = 32 * 1024;

#[inline(never)]
fn folded() -> [u32; COUNT] {
    (0..)
        .zip(0..COUNT)
        .fold([0; COUNT], |mut all, (number, at)| {
            all[at] = number;
            all
        })
}

#[inline(never)]
fn collected() -> Vec<u32> {
    (0..).take(COUNT).collect()
}

fn main() {
    let mut sum = 0_u64;
    for _ in 0..2 {
        sum += u64::from(black_box(folded())[COUNT - 1]);
    }
    for _ in 0..1000 {
        sum += u64::from(black_box(collected())[COUNT - 1]);
    }
    println!("{sum}");
}
