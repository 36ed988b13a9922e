//! A summary with what it cost: `summarize PROFILE [function|line|file|type|tree] [WIDTH]`.

use std::error::Error;
use std::time::Instant;

use nthbyte_profile::Profile;
use nthbyte_report::{By, Bytes, Summary, Tree};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: summarize PROFILE [BY] [WIDTH]")?;
    let by = arguments.next();
    let tree = by.as_deref() == Some("tree");
    let by = match by.as_deref() {
        None | Some("tree" | "function") => By::Function,
        Some("line") => By::Line,
        Some("file") => By::File,
        Some("type") => By::Type,
        Some(_) => return Err("by function, line, file or type".into()),
    };
    let width = arguments.next().map_or(Ok(100), |width| width.parse())?;
    let start = Instant::now();
    let profile = Profile::load(path.as_ref())?;
    let loaded = start.elapsed();
    if tree {
        print!("{}", Tree::<Bytes>::of(&profile, 60).render(width));
        return Ok(());
    }
    let mut summary = Summary::of(&profile, by);
    let took = start.elapsed();
    summary.truncate(20);
    print!("{}", summary.render::<Bytes>(width));
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "loaded {loaded:?}, in all {took:?}, {}",
        peak.unwrap_or_default()
    );
    Ok(())
}
