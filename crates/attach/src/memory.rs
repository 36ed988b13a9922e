//! The memory of another process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::denial::denied;
use crate::process;
use crate::refusal::Refusal;

/// The memory of another process, with the program that it executes at the time of [`Memory::open`]. After an `exec`
/// nothing can be read.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// If that is not allowed.
    pub fn open(pid: u32) -> Result<Self, Refusal> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(process::path(pid, "mem"));
        file.map(Self).map_err(|error| denied(pid, &error))
    }

    /// Reads bytes; `None` if they are not all there.
    #[must_use]
    pub fn bytes(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// Reads a number.
    #[must_use]
    pub fn u32(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Reads a number.
    #[must_use]
    pub fn u64(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Whether a text stands there, with the zero at its end.
    #[must_use]
    pub fn has_text(&self, at: u64, text: &str) -> bool {
        let found = self.bytes(at, text.len() + 1);
        found.is_some_and(|found| found.split_last() == Some((&0, text.as_bytes())))
    }

    /// Writes bytes, also where the process itself may not. Returns false if that fails.
    #[must_use]
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        self.0.write_all_at(bytes, at).is_ok()
    }
}

/// A mapping: a line of `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct MapsLine {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Its place in the file.
    pub offset: u64,
    /// Whether code in it can be executed.
    pub is_executable: bool,
    /// The file's path, or a name in brackets; empty for anonymous memory.
    pub name: String,
}

/// The mappings of a process.
///
/// # Errors
/// If they may not be read.
pub fn mappings(pid: u32) -> Result<Vec<MapsLine>, Refusal> {
    let text = std::fs::read(process::path(pid, "maps")).map_err(|error| denied(pid, &error))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<MapsLine> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    Some(MapsLine {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(words.next()?)?,
        is_executable: rights.contains('x'),
        name: words.nth(2).unwrap_or_default().trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read_with_spaces_in_its_name() {
        let line = "7f01-7f02 r-xp 00001000 fe:01 123                  /opt/a b/libpython3.13.so";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f01, 0x7f02));
        assert_eq!((mapping.offset, mapping.is_executable), (0x1000, true));
        assert_eq!(mapping.name, "/opt/a b/libpython3.13.so");
        assert_eq!(parse("7f01-7f02 rw-p 00000000 00:00 0 ").unwrap().name, "");
    }

    #[test]
    fn this_process_has_its_own_memory() {
        let value = 0x1234_5678_9abc_def0_u64;
        let memory = Memory::open(std::process::id()).unwrap();
        let at = (&raw const value) as u64;
        assert_eq!(memory.u64(at), Some(value));
        assert_eq!(memory.u32(at), Some(0x9abc_def0));
        assert_eq!(memory.bytes(8, 8), None);
    }
}
