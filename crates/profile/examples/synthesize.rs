//! Writes a made-up profile: `synthesize --samples 10000000 big.nthb`.

use std::error::Error;
use std::path::PathBuf;

use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, create};

const USAGE: &str = "usage: synthesize [--samples N] [--seed N] [--period BYTES] \
                     [--distances exponential|fixed|every] [--nodes N] [--hostile] OUTPUT";

fn main() -> Result<(), Box<dyn Error>> {
    let mut setup = Synthetic::default();
    let mut output = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--samples" => setup.samples = value()?.parse()?,
            "--seed" => setup.seed = value()?.parse()?,
            "--period" => setup.period = value()?.parse()?,
            "--distances" => {
                setup.distances = match value()?.as_str() {
                    "exponential" => Distances::Exponential,
                    "fixed" => Distances::Fixed,
                    "every" => Distances::Every,
                    _ => return Err(USAGE.into()),
                }
            }
            "--nodes" => setup.nodes = value()?.parse()?,
            "--hostile" => setup.hostile = true,
            _ if output.is_none() && !argument.starts_with('-') => {
                output = Some(PathBuf::from(argument));
            }
            _ => return Err(USAGE.into()),
        }
    }
    let file = create(&output.ok_or(USAGE)?)?;
    let bytes = setup.write(file)?.metadata()?.len();
    let each = bytes as f64 / f64::from(setup.samples.max(1));
    println!("{bytes} bytes, {each:.2} a sample");
    Ok(())
}
