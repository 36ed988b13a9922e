//! Loads a profile and says what it holds, how long that took and how much memory: `load FILE`.

use std::error::Error;
use std::time::Instant;

use nthbyte_profile::Profile;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: load PROFILE")?;
    let start = Instant::now();
    let profile = Profile::load(path.as_ref())?;
    let took = start.elapsed();
    println!("{:#?}", profile.meta);
    println!(
        "{} samples ({} shapes), {} functions, {} frames, {} stacks, {} types, {} threads, {} collections, complete: {}",
        profile.samples.len(),
        profile.samples.shapes().len(),
        profile.functions.len(),
        profile.frames.len(),
        profile.stacks.len(),
        profile.types.len(),
        profile.threads.len(),
        profile.collections.len(),
        profile.complete,
    );
    for damage in &profile.damage {
        println!("at {}: {}", damage.offset, damage.what);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{took:?}, {}", peak.unwrap_or_default());
    Ok(())
}
