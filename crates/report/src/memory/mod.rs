//! What the resident set was made of at a moment: counts of the kernel, of the C library and of the heap, and estimates from
//! the samples of what was alive.
//!
//! ```text
//! moment      which compositions a report is about
//! apart       how far they are from the moment that was asked for
//! live        what the samples say of live memory
//! key         the kinds of rows
//! accounting  the rows, which add up to the resident set
//! holders     who holds the free blocks of used pages
//! render      the table
//! ```

mod accounting;
mod apart;
mod holders;
mod key;
mod live;
mod moment;
mod render;

use std::ops::Range;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Composition, Domain, Part, Profile};
use serde::Serialize;

use crate::estimate::{Estimate, Estimator};
use crate::selection::{self, At};
use accounting::Rows;
pub use holders::{FreeMemoryHolder, FreeMemoryHolders};
pub use key::MemoryKey;

/// The version of the JSON; docs/memory.md describes it.
const VERSION: u32 = 1;
/// Holders that a report names.
const HOLDERS: usize = 10;
/// The whole of a profile.
const ALWAYS: Range<Nanos> = Nanos(0)..Nanos(u64::MAX);

/// What the resident set was made of. The field names are the JSON's.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryReport {
    version: u32,
    /// `peak`, `end` or `time`: what was asked for.
    at: &'static str,
    /// The moment, in nanoseconds since the start.
    pub at_nanos: u64,
    /// The resident set then, in bytes: the sum of the rows.
    pub rss: u64,
    /// The largest resident set of the session that is known, and when it was read; it may have been passed between two
    /// compositions.
    pub peak_rss: Option<u64>,
    /// Swapped out, in bytes; not a part of the resident set.
    pub swapped: u64,
    /// The processes whose memory is added up.
    pub processes: usize,
    /// Rows that are not empty, in the order of the table.
    pub rows: Vec<MemoryRow>,
    /// Who holds the free blocks of used pages; missing if that was not recorded, or on PyPy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<FreeMemoryHolders>,
    /// What the report lacks, in sentences.
    pub notes: Vec<String>,
    /// Whether it was read at another moment than was asked for, by so much that a note says it.
    #[serde(skip)]
    pub is_apart: bool,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRow {
    /// What it is.
    pub key: MemoryKey,
    /// Its name in the table.
    pub name: &'static str,
    /// The group of rows that it belongs to.
    pub group: &'static str,
    /// The bytes. They may be below zero for [`MemoryKey::NotResident`].
    pub bytes: Estimate,
    /// Whether they are counted, or estimated from samples.
    pub counted: bool,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// There are no compositions.
    #[error(
        "the profile does not say what memory is made of: it was cut off, written by an older nthbyte, or for less than a moment; `nthbyte summary --at peak` shows what was alive"
    )]
    NotRecorded,
    /// There are none in the part that was asked for.
    #[error(
        "what memory is made of was not read between --since and --until: give a longer part, or --at TIME for the nearest moment"
    )]
    NotThen,
    /// The time is after the end.
    #[error(
        "--at {time} is after the end of the profile, which is {end} long: give an earlier time"
    )]
    AfterTheEnd {
        /// The time.
        time: String,
        /// When the profile ends.
        end: String,
    },
}

impl MemoryReport {
    /// What the resident set was made of at a moment: at the composition nearest to it.
    ///
    /// # Errors
    /// If the profile has no compositions, or if the time is after its end.
    pub fn of(profile: &Profile, at: At) -> Result<Self, MemoryError> {
        Self::within(profile, at, &ALWAYS)
    }

    /// The same in a part of the time: its peak, or its end.
    ///
    /// # Errors
    /// If the profile has no compositions of that part, or if the time is after its end.
    pub fn within(profile: &Profile, at: At, range: &Range<Nanos>) -> Result<Self, MemoryError> {
        let moment = moment::of(profile, at, range)?;
        Ok(Self::at(profile, &live::estimator(profile), &moment, at))
    }

    /// What it was made of at several moments, at most so many: the peak, the end, and some between, in the order of time.
    #[must_use]
    pub fn over_time(profile: &Profile, most: usize) -> Vec<Self> {
        let moments = moment::several(profile, most);
        if moments.is_empty() {
            return Vec::new();
        }
        let estimator = live::estimator(profile);
        let at =
            |(moment, at): (moment::Observed<'_>, At)| Self::at(profile, &estimator, &moment, at);
        moments.into_iter().map(at).collect()
    }

    /// The sums of the rows by group, in the order of the table.
    pub(crate) fn groups(&self) -> Vec<(&'static str, f64)> {
        let mut groups: Vec<(&'static str, f64)> = Vec::new();
        for row in &self.rows {
            match groups.last_mut() {
                Some((group, sum)) if *group == row.group => *sum += row.bytes.estimate,
                _ => groups.push((row.group, row.bytes.estimate)),
            }
        }
        groups
    }

    fn at(profile: &Profile, estimator: &Estimator, moment: &moment::Observed<'_>, at: At) -> Self {
        let mut rows = Rows::default();
        let mut notes: Vec<String> = Vec::new();
        let mut rss = 0;
        let mut swapped = 0;
        for one in &moment.processes {
            let time = one.composition.time;
            let read = match moment.is_found {
                true => selection::Moment::Found(time),
                false => selection::Moment::Time(time),
            };
            let live = live::Live::of(profile, estimator, one.process, read);
            rows.add(&accounting::rows(one, &live));
            rss += one.composition.get(Part::Resident).unwrap_or(0);
            swapped += one.composition.get(Part::Swapped).unwrap_or(0);
            for note in accounting::notes(one, &live) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let apart = apart::note(profile, at, moment);
        let is_apart = apart.is_some();
        notes.extend(apart);
        notes.extend(profile.before());
        notes.extend(profile.missing());
        if !profile.complete {
            notes.push("the profile is incomplete: its end is what was written last".to_owned());
        }
        if moment.processes.len() > 1 {
            notes.push(
                "memory that processes share, such as libraries, counts in each of them".to_owned(),
            );
        }
        Self {
            version: VERSION,
            at: match at {
                At::Peak => "peak",
                At::End => "end",
                At::Time(_) => "time",
            },
            at_nanos: moment.time.0,
            rss,
            peak_rss: moment.peak_rss,
            swapped,
            processes: moment.processes.len(),
            rows: rows.finish(),
            holders: holders::of(profile, moment, HOLDERS),
            notes,
            is_apart,
        }
    }

    /// Keeps the rows of one domain, or all.
    pub fn keep_domain(&mut self, domain: Option<Domain>) {
        let Some(domain) = domain else { return };
        self.rows.retain(|row| row.key.domain() == Some(domain));
        if domain == Domain::Native {
            self.holders = None;
        }
    }

    /// The row of a key; `None` if it is empty.
    #[must_use]
    pub fn row(&self, key: MemoryKey) -> Option<&MemoryRow> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// The part of the resident set that is unknown, from 0 to 1.
    #[must_use]
    pub fn unknown(&self) -> f64 {
        let unknown = self
            .row(MemoryKey::Unknown)
            .map_or(0.0, |row| row.bytes.estimate);
        unknown / (self.rss as f64).max(1.0)
    }
}

/// A composition is complete if the kernel's part was recorded: the first one has the C library's counts only.
fn is_whole(composition: &Composition) -> bool {
    composition.get(Part::Resident).is_some()
}

/// The distance of two times.
fn distance(one: Nanos, other: Nanos) -> u64 {
    one.0.abs_diff(other.0)
}
