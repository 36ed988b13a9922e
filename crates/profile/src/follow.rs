//! The profiles of a program that runs: each look reads on from where the last one ended.
//!
//! ```text
//! file     blocks that stay ──────────────▶│ provisional blocks │ end
//!          read once, into a loader        │ read at each look, into a copy of it
//! ```
//!
//! A loader keeps live and recent samples ([`Loader::forget`]), so a look costs as much after an hour as after a minute, if
//! the program does not grow. Several files are joined for each look.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::checkpoint::Counted;
use crate::event::Nanos;
use crate::family::{self, FamilyError, require_different_sessions};
use crate::load::Loader;
use crate::merge::whole_ticks;
use crate::meta::Meta;
use crate::model::{Damage, Profile};
use crate::reader::{FilePlace, ReadError, Reader};

/// A program's profile, with the profiles of the processes that it starts.
pub struct Follower {
    first: PathBuf,
    kept: Nanos,
    files: Vec<Tail>,
    /// When the first session began, in nanoseconds since 1970.
    began: u64,
    /// The largest sum of resident sets until now.
    peak: u64,
    /// Whether something was read that no look has returned.
    has_news: bool,
    bytes_read: u64,
}

impl Follower {
    /// Follows a profile; it need not be there yet. What ended longer than `kept` ago is left out.
    #[must_use]
    pub fn new(path: &Path, kept: Nanos) -> Self {
        Self {
            first: path.to_owned(),
            kept,
            files: Vec::new(),
            began: 0,
            peak: 0,
            has_news: false,
            bytes_read: 0,
        }
    }

    /// Bytes of blocks that were read until now, in all looks.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// What the files say now; `None` if they have not changed since the last look.
    ///
    /// # Errors
    /// If a file cannot be read, or is none: one that is being made may be so for a moment.
    pub fn look(&mut self) -> Result<Option<Profile>, FamilyError> {
        let members = family::find(&self.first)?.members;
        let paths = std::iter::once(self.first.clone()).chain(members);
        self.read_on(&paths.collect::<Vec<_>>())?;
        let began = self.files.iter().map(|tail| tail.meta.started_unix_nanos);
        let began = began.min().unwrap_or(0);
        if began != self.began {
            // A child may begin before its parent: all times are later by that.
            self.began = began;
            self.files.iter_mut().for_each(|tail| tail.rewind(began));
            let paths: Vec<PathBuf> = self.files.iter().map(|tail| tail.path.clone()).collect();
            self.read_on(&paths)?;
        }
        if !self.has_news {
            return Ok(None);
        }
        let profile = match &self.files[..] {
            [one] => one.now.clone().finish(),
            several => {
                let mut all = Loader::default();
                several.iter().for_each(|tail| all.join(tail.now.clone()));
                all.finish()
            }
        };
        require_different_sessions(&profile.processes)?;
        self.has_news = false;
        Ok(Some(self.with_peak(profile)))
    }

    /// The profile, which says the largest resident set of all looks. A sum of several processes has no largest one of its own.
    fn with_peak(&mut self, mut profile: Profile) -> Profile {
        if profile.processes.len() > 1 {
            let largest = profile.memory.iter().filter_map(|memory| memory.rss).max();
            let largest = largest.unwrap_or(0);
            self.peak = self.peak.max(largest);
            if let (true, Some(first)) = (largest < self.peak, profile.memory.first_mut()) {
                first.peak_rss = Some(self.peak);
            }
        }
        profile
    }

    /// Reads the new parts of these files.
    fn read_on(&mut self, paths: &[PathBuf]) -> Result<(), FamilyError> {
        let before = self.files.len();
        self.files.retain(|tail| paths.contains(&tail.path));
        self.has_news |= self.files.len() < before;
        for path in paths {
            let failed = |source| FamilyError::Read {
                path: path.clone(),
                source,
            };
            let at = self.files.iter().position(|tail| tail.path == *path);
            let at = match at {
                Some(at) => at,
                None => {
                    self.files
                        .push(Tail::open(path, self.began).map_err(failed)?);
                    self.files.len() - 1
                }
            };
            let read = self.files[at].read_on(self.began, self.kept);
            let read = read.map_err(failed)?;
            self.bytes_read += read.unwrap_or(0);
            self.has_news |= read.is_some();
        }
        // As `Profile::load_all` has them.
        self.files.sort_by_cached_key(|tail| {
            let Meta {
                started_unix_nanos,
                pid,
                ..
            } = tail.meta;
            (started_unix_nanos, pid, tail.path.clone())
        });
        Ok(())
    }
}

/// What tells whether a file has changed: its number, length, and the time of its last change.
type Seen = (u64, u64, i64, i64);

/// A file, read as far as it stays.
struct Tail {
    path: PathBuf,
    meta: Meta,
    /// The header's bytes: another file of this name has others.
    header: Vec<u8>,
    start: FilePlace,
    place: FilePlace,
    /// What was read up to there.
    loader: Loader,
    damage: Vec<Damage>,
    /// The same, with the provisional blocks behind it, at its end.
    now: Loader,
    seen: Option<Seen>,
}

impl Tail {
    fn open(path: &Path, began: u64) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let reader = Reader::from_reader(&file)?;
        let (meta, start) = (reader.meta().clone(), reader.place());
        let mut header = vec![0; start.position as usize];
        file.read_exact_at(&mut header, 0)?;
        let mut tail = Self {
            path: path.to_owned(),
            meta,
            header,
            start,
            place: start,
            loader: Loader::default(),
            damage: Vec::new(),
            now: Loader::default(),
            seen: None,
        };
        tail.rewind(began);
        Ok(tail)
    }

    /// Begins anew, with times since `began`.
    fn rewind(&mut self, began: u64) {
        let start = self.meta.started_unix_nanos.saturating_sub(began);
        self.loader = Loader::default();
        self.loader.begin(&self.meta, whole_ticks(Nanos(start)));
        self.place = self.start;
        self.damage.clear();
        self.seen = None;
    }

    /// Reads the new part of the file. Returns the number of bytes; `None` if the file has not changed.
    fn read_on(&mut self, began: u64, kept: Nanos) -> Result<Option<u64>, ReadError> {
        let mut file = File::open(&self.path)?;
        let found = file.metadata()?;
        let seen = (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        if self.seen == Some(seen) {
            return Ok(None);
        }
        let mut header = vec![0; self.header.len()];
        let is_same = file.read_exact_at(&mut header, 0).is_ok() && header == self.header;
        if !is_same {
            *self = Self::open(&self.path, began)?;
        } else if found.len() < self.place.position {
            // After an error of the disk, the last block may have given way to its reason.
            self.rewind(began);
        }
        let mut bytes = 0;
        file.seek(SeekFrom::Start(self.place.position))?;
        let mut reader = Reader::go_on(
            Counted {
                file,
                bytes: &mut bytes,
            },
            self.meta.clone(),
            self.place,
        );
        let before = self.damage.clone();
        let damage = |reader: &Reader<Counted<'_>>| [before.clone(), reader.damage()].concat();
        let mut ahead: Option<Loader> = None;
        while let Some(block) = reader.next_block()? {
            if ahead.is_none() && !block.is_provisional() {
                self.loader.block(block);
                self.place = reader.place();
                self.damage = damage(&reader);
            } else {
                let ahead = ahead.get_or_insert_with(|| self.loader.clone());
                ahead.block(block);
            }
        }
        self.loader.forget(kept);
        let mut now = ahead.unwrap_or_else(|| self.loader.clone());
        now.forget(kept);
        now.end(damage(&reader));
        self.now = now;
        self.seen = Some(seen);
        drop(reader);
        Ok(Some(bytes))
    }
}
