//! The last bytes before the place of a write, to see afterwards whether they are still there.
//!
//! Another program may truncate the file between a look at its length and the write. The bytes from there to the write
//! are zeroes then, and no call tells. If the last bytes were written as zeroes themselves, nothing of them is missing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const BYTES: usize = 16;
const PAGE: u64 = 4096;

/// The last bytes that were written.
#[derive(Default)]
pub(super) struct Tail {
    bytes: [u8; BYTES],
    known: usize,
}

impl Tail {
    /// Adds bytes that were written behind these.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(BYTES)..];
        let kept = self.known.min(BYTES - new.len());
        self.bytes.copy_within(self.known - kept..self.known, 0);
        self.bytes[kept..kept + new.len()].copy_from_slice(new);
        self.known = kept + new.len();
    }

    /// Whether the file has these bytes before this place.
    ///
    /// # Errors
    /// The errors of reading. A file that can only be written is believed.
    pub(super) fn is_before(&self, file: &File, place: u64) -> io::Result<bool> {
        let mut found = [0; BYTES];
        let found = &mut found[..self.known];
        match file.read_exact_at(found, place - self.known as u64) {
            Ok(()) => Ok(found == &self.bytes[..self.known]),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Truncates the file before the hole that a write behind its end has made.
pub(super) fn cut_before_hole(file: &File, place: u64) -> io::Result<()> {
    // SAFETY: asks for the place of the first hole, or the file's end.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    let mut end = place.min(u64::try_from(hole).unwrap_or(place));
    // The page in which the file ended has no hole, but zeroes.
    let mut page = [0; PAGE as usize];
    let start = end.saturating_sub(PAGE);
    let page = &mut page[..(end - start) as usize];
    file.read_exact_at(page, start)?;
    end -= page.iter().rev().take_while(|byte| **byte == 0).count() as u64;
    file.set_len(end)
}
