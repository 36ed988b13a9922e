//! A small Lisp whose values live in the nursery, which runs GCBench and profiles itself:
//!
//! ```text
//! cargo run --release -p nthbyte-nursery --example lisp -- gcbench.nthb
//! nthbyte summary gcbench.nthb
//! ```

mod machine;
mod profiler;
mod reader;

use std::error::Error;
use std::path::PathBuf;

use machine::Machine;
use nthbyte_nursery::Settings;
use nthbyte_sampling::{Distances, Period, Sampler};
use profiler::Profiler;

const USAGE: &str = "usage: lisp [--every BYTES] [--fixed] [--seed N] [--depth N] OUTPUT";

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
    let source = include_str!("gcbench.lisp");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/lisp/gcbench.lisp");
    let functions = reader::read(source)?;
    let out = nthbyte_profile::create(&output.ok_or(USAGE)?)?;
    let profiler = Profiler::new(
        out,
        file,
        &functions,
        &machine::types(),
        period.bytes(),
        distances,
    )?;
    let mut machine = Machine::new(functions, Settings::default(), profiler);
    machine
        .heap
        .start_sampling(Sampler::new(period, distances, seed));
    let result = machine.main(depth);
    // What is sampled and still young is settled now.
    machine.heap.collect_minor();
    let allocated = machine.heap.statistics().allocated;
    machine.heap.into_observer().finish(allocated)?;
    println!("{result:?}, {allocated} bytes allocated");
    Ok(())
}
