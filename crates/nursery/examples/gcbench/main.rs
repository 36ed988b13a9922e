//! GCBench, whose objects live in the nursery, profiles itself:
//!
//! ```text
//! cargo run --release -p nthbyte-nursery --example gcbench -- gcbench.nthb
//! nthbyte summary gcbench.nthb
//! ```

mod profiler;
mod trees;

use std::error::Error;
use std::path::PathBuf;

use nthbyte_nursery::{HeapSizes, MovingHeap};
use nthbyte_sampling::{Distances, Period, Sampler};
use profiler::Profiler;

const USAGE: &str = "usage: gcbench [--every BYTES] [--fixed] [--seed N] [--depth N] OUTPUT";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut period, mut distances, mut seed, mut depth) =
        (512 << 10, Distances::Exponential, 1, 14);
    let mut output = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--every" => period = value()?.parse()?,
            "--fixed" => distances = Distances::Fixed,
            "--seed" => seed = value()?.parse()?,
            "--depth" => depth = value()?.parse()?,
            _ if output.is_none() && !argument.starts_with('-') => {
                output = Some(PathBuf::from(argument))
            }
            _ => return Err(USAGE.into()),
        }
    }
    let period = Period::new(period).ok_or("--every is 1, or from 64 to 2^40")?;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gcbench/trees.rs");
    let out = nthbyte_profile::create(&output.ok_or(USAGE)?)?;
    let profiler = Profiler::new(out, file, &trees::types(), period.bytes(), distances)?;
    let mut heap = MovingHeap::new(HeapSizes::default(), trees::types(), profiler);
    heap.start_sampling(Sampler::new(period, distances, seed));
    let result = trees::run(&mut heap, depth);
    // Young samples are settled now.
    heap.collect_minor();
    let allocated = heap.statistics().allocated;
    heap.into_observer().finish(allocated)?;
    println!("{result:?}, {allocated} bytes allocated");
    Ok(())
}
