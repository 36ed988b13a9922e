//! The files of earlier parts of the session, and which of them are dropped.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nthbyte_profile::event::Nanos;
use nthbyte_profile::segment::{file_name, folder_of};

use crate::config::Keep;

/// Sums take a small part of the room, and are of so many times the time at most.
const SUMS_PART: u64 = 16;
const SUMS_TIME: u64 = 16;

/// A file of the ring.
struct Kept {
    path: PathBuf,
    until: Nanos,
    bytes: u64,
}

pub(super) struct Ring {
    keep: Keep,
    folder: PathBuf,
    /// Those with samples, the oldest one first; `bytes` is the sum of all.
    whole: VecDeque<Kept>,
    whole_bytes: u64,
    /// Those with sums only, which are older.
    sums: VecDeque<Kept>,
    sums_bytes: u64,
}

impl Ring {
    pub(super) fn new(keep: Keep, profile: &Path) -> Self {
        Self {
            keep,
            folder: folder_of(profile),
            whole: VecDeque::new(),
            whole_bytes: 0,
            sums: VecDeque::new(),
            sums_bytes: 0,
        }
    }

    pub(super) const fn keep(&self) -> Keep {
        self.keep
    }

    /// Where the next file is prepared; the folder is made.
    pub(super) fn next(&self) -> io::Result<PathBuf> {
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(&self.folder)?;
        // SAFETY: it only returns a number.
        let user = unsafe { libc::geteuid() };
        if !found.is_dir() || found.uid() != user {
            let message = format!("{} is no folder of this user", self.folder.display());
            return Err(io::Error::other(message));
        }
        Ok(self.folder.join(".next"))
    }

    /// Gives the finished file at `profile` its name in the ring, and a new one at `next` its place. At no moment is there no file at `profile`.
    /// `sums` remain of it once it is dropped.
    pub(super) fn push(
        &mut self,
        number: u32,
        profile: &Path,
        next: &Path,
        sums: &[u8],
        until: Nanos,
    ) -> io::Result<()> {
        let path = self.folder.join(file_name(number));
        let bytes = fs::metadata(profile)?.len();
        // A file of an earlier recording of this name.
        let _ = fs::remove_file(&path);
        if fs::hard_link(profile, &path).is_err() {
            // A file system without hard links.
            fs::rename(profile, &path)?;
        }
        fs::rename(next, profile)?;
        write_privately(&hidden(&path), sums)?;
        self.whole_bytes += bytes;
        self.whole.push_back(Kept { path, until, bytes });
        Ok(())
    }

    /// Drops the parts that are too old or too much. What cannot be removed stays.
    pub(super) fn drop_old(&mut self, now: Nanos, present_bytes: u64) {
        let time = self.keep.nanos.unwrap_or(u64::MAX);
        let room = self.keep.bytes.unwrap_or(u64::MAX);
        let is_old = |until: Nanos, time: u64| now.0.saturating_sub(until.0) > time;
        let of_sums = room / SUMS_PART;
        while let Some(oldest) = self.whole.front()
            && (is_old(oldest.until, time) || self.whole_bytes + present_bytes > room - of_sums)
        {
            let Some(mut oldest) = self.whole.pop_front() else {
                break;
            };
            self.whole_bytes -= oldest.bytes;
            let sums = hidden(&oldest.path);
            oldest.bytes = fs::metadata(&sums).map_or(0, |found| found.len());
            if fs::rename(&sums, &oldest.path).is_err() {
                let _ = fs::remove_file(&oldest.path);
                continue;
            }
            self.sums_bytes += oldest.bytes;
            self.sums.push_back(oldest);
        }
        while let Some(oldest) = self.sums.front()
            && (is_old(oldest.until, time.saturating_mul(SUMS_TIME)) || self.sums_bytes > of_sums)
        {
            self.sums_bytes -= oldest.bytes;
            let _ = fs::remove_file(&oldest.path);
            self.sums.pop_front();
        }
    }
}

/// The name of the sums of a file while it is there.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.sums"))
}

fn write_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file?.write_all(bytes)
}
