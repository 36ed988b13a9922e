//! The page: a profile as one self-contained HTML file.
//!
//! The file is a fixed template (built from `web/` at the root of the project, and committed so
//! that building nthbyte needs no JavaScript tools) with the profile's data in the middle. The
//! data are one block of base64, so no name in a profile can become markup; the template's
//! scripts put names on the page as text only. `docs/flamegraph.md` describes the data.
//!
//! The data are aggregates, not samples: how often each (stack, type, lifetime, shape) occurs in each
//! of up to [`records::BUCKETS`] equal parts of the session's time. So the page can show
//! a range of time, but only in steps of these parts.

mod alive;
mod classes;
mod data;
mod distributions;
mod grouped;
mod pack;
mod prune;
mod records;
mod table;
mod timeline;

use std::io::{self, Write};

pub use data::Base;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Groups, Profile};

use crate::leaks::Leaks;
use crate::memory::MemoryReport;
use crate::selection::peak_of_all;
use records::MOST_WEIGHT;

/// The page as `web/` builds it.
const TEMPLATE: &str = include_str!("../../assets/flamegraph.html");

/// The marker in [`TEMPLATE`] that the data replace.
const PLACE: &str = "@NTHBYTE_DATA@";

/// Moments of [`MemoryReport`] that a page may have.
pub const MOMENTS: usize = 40;

/// What a page shows of a profile. The default is no peak: see [`Page::of`].
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// When most was alive ([`crate::Selection::narrow_with_peak`]); `None` if that is not known.
    pub peak: Option<Nanos>,
    /// A moment that was asked for: what was alive then is exact, not only the nearest end of a part of time.
    pub asked: Option<Nanos>,
    /// The first view: `peak`, `time` for the moment that was asked for, or `end`; `None` for all that was allocated.
    pub opens: Option<&'static str>,
    /// What the resident set was made of at some moments: [`MemoryReport::over_time`] of the profile before samples were removed from it.
    pub memory: &'a [MemoryReport],
    /// The groups that stacks begin with ([`Profile::root_by_groups`]); `None` if they do not.
    pub groups: Option<&'a Groups>,
    /// The key of the groups that the graph is arranged by at first.
    pub by: Option<&'a str>,
    /// The limit of its size: about half of the bytes of the data, without what was alive.
    pub weight: usize,
    /// What it is compared with. Then it has no moments.
    pub base: Option<&'a Base<'a>>,
}

impl Page<'_> {
    /// The page of a profile from which nothing was removed.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        Self {
            peak: peak_of_all(profile),
            ..Self::default()
        }
    }
}

impl Default for Page<'_> {
    fn default() -> Self {
        Self {
            peak: None,
            asked: None,
            opens: None,
            memory: &[],
            groups: None,
            by: None,
            weight: MOST_WEIGHT,
            base: None,
        }
    }
}

/// Writes the page of a profile.
///
/// # Errors
/// Whatever `out` reports.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    write_page(profile, &Page::of(profile), out, &mut |_, _| {})
}

/// Like [`write()`]. `progress` gets the number of steps done and the number of all steps.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_page(
    profile: &Profile,
    page: &Page<'_>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    fill(TEMPLATE, out, |data| {
        data::write(profile, page, data, progress)
    })
}

/// The page of a profile, coloured by what changed against another one.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_difference(
    new: &Profile,
    base: &Base<'_>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let page = Page {
        base: Some(base),
        ..Page::default()
    };
    write_page(new, &page, out, progress)
}

/// The page of `nthbyte leaks --page` as `web/` builds it.
const LEAKS_TEMPLATE: &str = include_str!("../../assets/leaks.html");

/// Writes the page of what accumulates: the JSON of docs/leaks.md, with the charts of it.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_leaks(leaks: &Leaks, out: &mut dyn Write) -> io::Result<()> {
    fill(LEAKS_TEMPLATE, out, |data| {
        Ok(serde_json::to_writer(data, leaks)?)
    })
}

/// Writes a template with data in its place: deflated, as base64.
fn fill(
    template: &str,
    out: &mut dyn Write,
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let (before, after) = template
        .split_once(PLACE)
        .expect("the build of the template checks that it has a place for the data");
    out.write_all(before.as_bytes())?;
    let base64 =
        base64::write::EncoderWriter::new(&mut *out, &base64::engine::general_purpose::STANDARD);
    let mut deflate = flate2::write::DeflateEncoder::new(base64, flate2::Compression::default());
    data(&mut deflate)?;
    deflate.finish()?.finish()?;
    out.write_all(after.as_bytes())
}
