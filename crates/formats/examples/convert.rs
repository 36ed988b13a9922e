//! Converts a profile, and says how long that took: `convert FORMAT PROFILE OUTPUT`.

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use nthbyte_formats::{collapsed, firefox, pprof, speedscope, vmprof};
use nthbyte_profile::Profile;

const USAGE: &str =
    "usage: convert firefox|firefox-gz|pprof|speedscope|collapsed|import INPUT OUTPUT";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(USAGE);
    let (format, input, output) = (next()?, PathBuf::from(next()?), PathBuf::from(next()?));
    let mut progress = |_, _| ();
    let start = Instant::now();
    if format == "import" {
        let imported = vmprof::import(&input, &output, &mut progress)?;
        println!("{imported:#?}");
        return Ok(());
    }
    let profile = Profile::load(&input)?;
    let loaded = start.elapsed();
    let mut out = File::create(&output)?;
    match format.as_str() {
        "firefox" => firefox::write(&profile, &mut out, &mut progress)?,
        "firefox-gz" => firefox::write_gzip(&profile, &mut out, &mut progress)?,
        "pprof" => pprof::write(&profile, &mut out, &mut progress)?,
        "speedscope" => speedscope::write(&profile, &mut out, &mut progress)?,
        "collapsed" => collapsed::write(&profile, &mut out, &mut progress)?,
        _ => return Err(USAGE.into()),
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "load {loaded:?}, all {:?}, {} bytes, {}",
        start.elapsed(),
        out.metadata()?.len(),
        peak.unwrap_or_default(),
    );
    Ok(())
}
