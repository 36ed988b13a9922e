//! Opens the profile that a command reads.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nthbyte_profile::Profile;

use crate::progress::Progress;

/// Reads a whole profile. If a part of it is damaged, prints one line about it on stderr.
///
/// # Errors
/// If it cannot be read, or is not a profile.
pub fn load(path: &Path) -> Result<Profile> {
    let profile = load_quietly(path)?;
    warn(path, &profile);
    Ok(profile)
}

/// Reads a whole profile, for a command that reports damage in its own output.
///
/// # Errors
/// If it cannot be read, or is not a profile.
pub fn load_quietly(path: &Path) -> Result<Profile> {
    let progress = Progress::bytes("reading");
    Profile::load_with(path, |done, total| progress.at(done, total))
        .map_err(anyhow::Error::from)
        .with_context(|| format!("cannot read {}", path.display()))
}

/// Checks that a profile has time samples.
///
/// # Errors
/// If it has none.
pub fn require_time(path: &Path, profile: &Profile) -> Result<()> {
    if profile.cpu.is_empty() {
        bail!(
            "{} has no time samples: record it on PyPy with `nthbyte run --cpu HZ`",
            path.display()
        );
    }
    Ok(())
}

fn warn(path: &Path, profile: &Profile) {
    if let Some(first) = profile.damage.first() {
        let further = profile.damage.len() - 1;
        let more = if further == 0 {
            String::new()
        } else {
            format!(" (and {further} more)")
        };
        eprintln!(
            "nthbyte: {} is damaged at byte {}: {}{more}; what could be read is shown",
            path.display(),
            first.offset,
            first.what.trim_end_matches('.'),
        );
    }
}
