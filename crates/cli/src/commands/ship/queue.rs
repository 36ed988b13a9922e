//! What waits to be sent, and how far each recording was taken: files, which this user alone can read.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::receiver::Receiver;
use super::windows::{Shipment, State};
use crate::output::say;

/// The queue's folder.
pub struct Queue {
    folder: PathBuf,
    /// Bytes for each receiver.
    most: u64,
}

const STATE: &str = "state.json";

impl Queue {
    /// Opens it; it is made if it is not there.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn open(folder: &Path, most: u64) -> Result<Self> {
        make(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            most,
        })
    }

    /// How far recordings were taken, as it was saved. Without it, or where it cannot be read, nothing was taken.
    pub fn state(&self) -> State {
        let text = fs::read(self.folder.join(STATE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Saves it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, state: &State) -> Result<()> {
        replace(&self.folder.join(STATE), &serde_json::to_vec(state)?)
    }

    /// Adds a window for a receiver. One with the same identity, which was never sent, gives way. If there is no room, the oldest ones are dropped.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, receiver: &Receiver, of: &Shipment<'_>) -> Result<()> {
        let folder = self.folder_of(receiver);
        make(&folder)?;
        for known in self.waiting(receiver)? {
            let name = known.file_stem().unwrap_or_default().to_string_lossy();
            if name.ends_with(&of.hexadecimal()) {
                fs::remove_file(known)?;
            }
        }
        let name = format!("{:020}-{}.window", of.ends_unix(), of.hexadecimal());
        replace(&folder.join(name), &receiver.body(of)?)?;
        let mut waiting = self.waiting(receiver)?;
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        let mut bytes: u64 = waiting.iter().map(size).sum();
        let mut dropped = 0;
        // The newest one stays.
        waiting.pop();
        for oldest in waiting {
            if bytes <= self.most {
                break;
            }
            bytes -= size(&oldest);
            fs::remove_file(oldest)?;
            dropped += 1;
        }
        if dropped > 0 {
            say!(
                "nthbyte: the queue of {} is full: {dropped} windows were dropped",
                receiver.name()
            );
        }
        Ok(())
    }

    /// What waits for a receiver, the oldest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn waiting(&self, receiver: &Receiver) -> Result<Vec<PathBuf>> {
        let Ok(entries) = self.folder_of(receiver).read_dir() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "window") {
                found.push(path);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn folder_of(&self, receiver: &Receiver) -> PathBuf {
        let sign = |sign: char| {
            if sign.is_ascii_alphanumeric() {
                sign
            } else {
                '-'
            }
        };
        self.folder
            .join(receiver.name().chars().map(sign).collect::<String>())
    }
}

fn make(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    Ok(())
}

/// Writes a file that is there as a whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}
