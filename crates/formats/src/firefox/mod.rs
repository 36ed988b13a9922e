//! The Firefox Profiler's processed profile, written as a stream.
//!
//! This is version 70 of the format, the newest one that its documentation describes
//! (`docs-developer/CHANGELOG-formats.md` and `src/types/profile.ts` of firefox-devtools/profiler).
//! The page upgrades older versions when it loads them. The published crate
//! `fxprof-processed-profile` 0.8.1 is not used: it writes version 55, its counters have no units and no
//! rows of tooltips, and its functions and frames have no files and lines.
//!
//! The format consists of tables, stored by column. A column of a sample table is never in memory
//! as a whole: a `Column` is serialised from an iterator that makes one value at a time.
//!
//! The parts of a session become:
//!
//! | session | Firefox Profiler |
//! |---|---|
//! | allocation samples of a thread | a track of its own, weighted by bytes |
//! | type and lifetime of the object | the top frame, in the lifetime's colour: a function for each |
//! | sampled objects' ends | `nativeAllocations`, for "Retained Memory" |
//! | time samples of a thread | a second track |
//! | collections | markers, each kind with a schema |
//! | memory totals | counter tracks |
//! | description | "Profile information": `meta.extra` |

mod categories;
mod counters;
mod description;
mod export;
mod frames;
mod markers;
mod native;
mod packages;
mod sources;
mod tables;
mod tracks;

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::GzBuilder;
use nthbyte_profile::Profile;
use serde::Serializer as _;
use serde::ser::SerializeMap as _;

use crate::Progress;
pub use description::FORMAT_VERSION;
use export::Export;
pub use export::FirefoxOptions;

/// Writes the profile as JSON, with the default [`FirefoxOptions`].
///
/// # Errors
/// If `out` fails.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    write_with(profile, FirefoxOptions::default(), out, progress)
}

/// Writes the profile as gzip-compressed JSON, which the page opens too, with the default [`FirefoxOptions`].
///
/// # Errors
/// If `out` fails.
pub fn write_gzip(
    profile: &Profile,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> io::Result<()> {
    write_gzip_with(profile, FirefoxOptions::default(), out, progress)
}

/// Writes the profile as gzip-compressed JSON, which the page opens too.
///
/// # Errors
/// If `out` fails.
pub fn write_gzip_with(
    profile: &Profile,
    options: FirefoxOptions,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> io::Result<()> {
    let mut out = GzBuilder::new()
        // So that a later export knows the file again.
        .comment("nthbyte")
        .write(out, Compression::fast());
    write_with(profile, options, &mut out, progress)?;
    out.finish()?.flush()
}

/// Writes the profile as JSON. One step of `progress` is one number in a column.
///
/// # Errors
/// If `out` fails.
pub fn write_with(
    profile: &Profile,
    options: FirefoxOptions,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> io::Result<()> {
    let leaves = crate::leaves::Leaves::of(profile);
    let export = Export::new(profile, &leaves, options, progress);
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let mut json = serde_json::Serializer::new(&mut out);
    let mut map = json.serialize_map(None)?;
    map.serialize_entry("meta", &description::Meta(&export))?;
    map.serialize_entry("libs", &[(); 0])?;
    map.serialize_entry("pages", &[(); 0])?;
    map.serialize_entry("counters", &counters::of(&export))?;
    map.serialize_entry("threads", &tracks::Tracks(&export))?;
    // The string array is last, because the tracks' markers add strings to it.
    map.serialize_entry("shared", &frames::Shared(&export))?;
    map.end()?;
    export.meter.finish();
    out.flush()
}
