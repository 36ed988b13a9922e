//! A profile in several files, of which old ones are dropped: one session, a file for each of its parts.
//!
//! ```text
//! app.kept/000001.nthb  sums only: what was allocated then, by function and type
//! app.kept/000002.nthb  what was alive when it began │ everything since then │ sums
//! app.nthb              what was alive when it began │ everything since then
//! ```
//!
//! Each file can be read alone: it defines all that it refers to, and begins with the samples that were alive when it began (*carried* ones, with their
//! old times). Read together they are one session, in which a sample that is in several files counts once. All have the times of the session.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::event::Nanos;
use crate::varint::{put, take};

/// The kind of an event that holds [`Carried`].
pub const CARRIED: u8 = 80;
/// The kind of an event that holds [`Sums`].
pub const SUMS: u8 = 81;

/// Which part of a session a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPart {
    /// Its number; the first one is 1.
    pub number: u32,
    /// When it began, in nanoseconds since the start of the session.
    pub since_nanos: u64,
}

/// So many samples an event [`CARRIED`] has at most: an event has a mebibyte at most.
const MOST_CARRIED: usize = 128 << 10;

/// Which samples of the session the first samples of a file are: those that were alive when it began. Very many are in several events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The number, in the session, of the first sample that is not carried. They have no gaps from there on.
    pub next: u32,
    /// How many events with further ones follow.
    pub more: u32,
    /// The numbers of the carried ones, in the session.
    pub samples: Vec<u32>,
}

impl Carried {
    /// All of them, in as many events as are needed; one at least.
    pub fn events(next: u32, samples: &[u32]) -> impl Iterator<Item = Self> {
        let count = samples.len().div_ceil(MOST_CARRIED).max(1);
        (0..count).map(move |at| {
            let first = at * MOST_CARRIED;
            Self {
                next,
                more: (count - 1 - at) as u32,
                samples: samples[first..samples.len().min(first + MOST_CARRIED)].to_vec(),
            }
        })
    }

    /// The content of an event [`CARRIED`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.next.into());
        put(&mut bytes, self.more.into());
        put(&mut bytes, self.samples.len() as u64);
        let mut last = 0;
        for &sample in &self.samples {
            put(&mut bytes, u64::from(sample.wrapping_sub(last)));
            last = sample;
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let next = u32::try_from(take(&mut bytes)?).ok()?;
        let more = u32::try_from(take(&mut bytes)?).ok()?;
        let count = usize::try_from(take(&mut bytes)?).ok()?;
        // A byte for each at least.
        let mut samples = Vec::with_capacity(count.min(bytes.len()));
        let mut last = 0_u32;
        for _ in 0..count {
            let more = u32::try_from(take(&mut bytes)?).ok()?;
            let is_first = samples.is_empty();
            last = last.checked_add(more).filter(|_| more > 0 || is_first)?;
            samples.push(last);
        }
        (last < next || samples.is_empty()).then_some(Self {
            next,
            more,
            samples,
        })
    }
}

/// What samples of one kind stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PartSum {
    /// Bytes allocated.
    pub bytes: f64,
    /// Objects allocated.
    pub objects: f64,
    /// The number of samples.
    pub samples: u64,
}

impl PartSum {
    /// Adds another one.
    pub fn add(&mut self, of: &Self) {
        self.bytes += of.bytes;
        self.objects += of.objects;
        self.samples += of.samples;
    }

    fn put(&self, to: &mut Vec<u8>) {
        put(to, self.bytes.round() as u64);
        put(to, self.objects.round() as u64);
        put(to, self.samples);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            bytes: take(bytes)? as f64,
            objects: take(bytes)? as f64,
            samples: take(bytes)?,
        })
    }
}

/// What was allocated in a part of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sums {
    /// When it began, in the session's time.
    #[serde(skip)]
    pub since: Nanos,
    /// When it ended.
    #[serde(skip)]
    pub until: Nanos,
    /// All of it.
    pub all: PartSum,
    /// Of each function, by its name and file: those with most first, the others left out.
    pub functions: Vec<(String, String, PartSum)>,
    /// Of each type, by its name.
    pub types: Vec<(String, PartSum)>,
}

/// So long names are kept in sums.
const LONGEST: usize = 1 << 10;

impl Sums {
    /// The content of an event [`SUMS`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let to = &mut bytes;
        put(to, self.since.0);
        put(to, self.until.0);
        self.all.put(to);
        put(to, self.functions.len() as u64);
        for (name, file, sum) in &self.functions {
            put_text(to, name);
            put_text(to, file);
            sum.put(to);
        }
        put(to, self.types.len() as u64);
        for (name, sum) in &self.types {
            put_text(to, name);
            sum.put(to);
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let mut sums = Self {
            since: Nanos(take(from)?),
            until: Nanos(take(from)?),
            all: PartSum::take(from)?,
            ..Self::default()
        };
        for _ in 0..take(from)? {
            let (name, file) = (take_text(from)?, take_text(from)?);
            sums.functions.push((name, file, PartSum::take(from)?));
        }
        for _ in 0..take(from)? {
            sums.types.push((take_text(from)?, PartSum::take(from)?));
        }
        (sums.since <= sums.until).then_some(sums)
    }
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    let end = (0..=text.len().min(LONGEST))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    let text = &text[..end.unwrap_or(0)];
    put(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

/// The folder of the earlier files of a profile: `app.kept` beside `app.nthb`.
#[must_use]
pub fn folder_of(profile: &Path) -> PathBuf {
    profile.with_extension("kept")
}

/// The name of the file of a segment in that folder.
#[must_use]
pub fn file_name(number: u32) -> String {
    format!("{number:06}.nthb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let carried = Carried {
            next: 9,
            more: 0,
            samples: vec![0, 3, 8],
        };
        let sum = |bytes| PartSum {
            bytes,
            objects: 2.0,
            samples: 1,
        };
        let sums = Sums {
            since: Nanos(5),
            until: Nanos(7),
            all: sum(10.0),
            functions: vec![("f".to_owned(), "a.py".to_owned(), sum(7.0))],
            types: vec![("dict".to_owned(), sum(3.0))],
        };
        let (bytes, of_sums) = (carried.encode(), sums.encode());
        assert_eq!(Carried::parse(&bytes), Some(carried));
        assert_eq!(Sums::parse(&of_sums), Some(sums));
        for end in 0..bytes.len() {
            assert_eq!(Carried::parse(&bytes[..end]), None);
        }
        for end in 0..of_sums.len() {
            assert_eq!(Sums::parse(&of_sums[..end]), None);
        }
        let bad = |next, samples: &[u32]| {
            let samples = samples.to_vec();
            let more = 0;
            Carried::parse(
                &Carried {
                    next,
                    more,
                    samples,
                }
                .encode(),
            )
        };
        // Not in order, twice, and not before the next one.
        assert_eq!(bad(9, &[3, 2]), None);
        assert_eq!(bad(9, &[3, 3]), None);
        assert_eq!(bad(8, &[8]), None);
        // A small event that says that it has many.
        assert_eq!(Carried::parse(&[9, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), None);
        let all: Vec<u32> = (0..2 * MOST_CARRIED as u32 + 1).collect();
        let events: Vec<Carried> = Carried::events(u32::MAX, &all).collect();
        assert_eq!(
            events.iter().map(|of| of.more).collect::<Vec<_>>(),
            [2, 1, 0]
        );
        let together: Vec<u32> = events.iter().flat_map(|of| of.samples.clone()).collect();
        assert_eq!(together, all);
        assert_eq!(Carried::events(9, &[]).count(), 1);
    }
}
