//! The last bytes before the place of a write, to see afterwards whether they are still there.
//!
//! Another program may truncate the file between a look at its length and the write. The bytes from there to the write
//! are zeroes then, and no call tells. If the last bytes were written as zeroes themselves, nothing of them is missing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const BYTES: usize = 16;
/// Bytes that are read at once.
const CHUNK: u64 = 4096;

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

    /// Whether the file has these bytes before this place; true where the file cannot be read.
    pub(super) fn is_before(&self, file: &File, place: u64) -> bool {
        let mut found = [0; BYTES];
        let found = &mut found[..self.known];
        match file.read_exact_at(found, place - self.known as u64) {
            Ok(()) => found == &self.bytes[..self.known],
            Err(error) => error.kind() != io::ErrorKind::UnexpectedEof,
        }
    }
}

/// Truncates the file before the hole that a write behind its end has made. If the other program truncates it only now,
/// there may be none.
pub(super) fn cut_before_hole(file: &File, place: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    // SAFETY: asks for the place of the first hole, or the file's end. An empty file has neither.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    let end = place.min(length).min(u64::try_from(hole).unwrap_or(length));
    // The page in which the file ended has no hole, but zeroes.
    let mut page = [0; CHUNK as usize];
    let start = end.saturating_sub(CHUNK);
    let found = file.read_at(&mut page[..(end - start) as usize], start)?;
    let data = page[..found].iter().rposition(|byte| *byte != 0);
    let end = start + data.map_or(0, |last| last as u64 + 1);
    if end < length {
        file.set_len(end)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other program may truncate the file after the write, too.
    #[test]
    fn nothing_is_cut_from_a_file_without_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        for length in [0, 1, 4095, 4096, 10_000] {
            let data = vec![b'x'; length];
            std::fs::write(&path, &data).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            for place in [length, length + 1, 50_000] {
                cut_before_hole(&file, place as u64).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), data);
            }
        }
    }

    #[test]
    fn the_last_bytes_are_those_of_all_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        let data: Vec<u8> = (1..=200).collect();
        std::fs::write(&path, &data).unwrap();
        let file = File::open(&path).unwrap();
        for size in [1, 3, 15, 16, 17, 40] {
            let (mut tail, mut place) = (Tail::default(), 0);
            for part in data.chunks(size) {
                assert!(tail.is_before(&file, place));
                tail.push(part);
                place += part.len() as u64;
            }
            assert!(tail.is_before(&file, 200));
            assert!(!tail.is_before(&file, 199));
            assert!(!tail.is_before(&file, 201));
        }
    }

    /// An error of reading says nothing of what was written.
    #[test]
    fn a_file_that_cannot_be_read_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        std::fs::write(&path, [0; 20]).unwrap();
        let mut tail = Tail::default();
        tail.push(b"these bytes");
        let file = File::open(&path).unwrap();
        assert!(!tail.is_before(&file, 20));
        assert!(!tail.is_before(&file, 31));
        let only_written = File::options().write(true).open(&path).unwrap();
        assert!(tail.is_before(&only_written, 20));
        let directory = File::open(folder.path()).unwrap();
        assert!(tail.is_before(&directory, 20));
    }
}
