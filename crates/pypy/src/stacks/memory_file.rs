//! Memory files, which a signal handler may append to.
//!
//! A program may close descriptors that it did not open (a daemon closes all of them), and get their numbers
//! for files of its own. So a file has a number that is out of the way, is known by device and inode, and is
//! looked at before each use. If the program has closed it, there is another, which goes on where it ended.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64};

/// Descriptors from here on are out of the way of programs that count on low numbers.
const FIRST_DESCRIPTOR: c_int = 512;

/// A file in memory, or none.
pub struct MemoryFile {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// What lies before is gone.
    start: AtomicI64,
    length: AtomicI64,
}

impl MemoryFile {
    /// No file.
    pub const fn none() -> Self {
        Self {
            descriptor: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            start: AtomicI64::new(0),
            length: AtomicI64::new(0),
        }
    }

    /// Makes an empty file in place of the one before. Nobody may append meanwhile.
    ///
    /// # Errors
    /// There is no descriptor, or no memory, left.
    pub fn make(&self) -> io::Result<()> {
        self.close();
        self.length.store(0, Relaxed);
        match self.open() {
            Some(_) => Ok(()),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Opens a file that begins where the one before ended. Safe in a signal handler.
    fn open(&self) -> Option<c_int> {
        // SAFETY: the name is a terminated string.
        let low = unsafe { libc::memfd_create(c"nthbyte".as_ptr(), libc::MFD_CLOEXEC) };
        let (device, inode) = identity(low)?;
        // SAFETY: duplicates a descriptor that is open.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
        let descriptor = if high < 0 {
            low
        } else {
            // SAFETY: the descriptor is ours, made above.
            unsafe { libc::close(low) };
            high
        };
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.start.store(self.length(), Relaxed);
        self.descriptor.store(descriptor, Release);
        Some(descriptor)
    }

    /// Appends bytes: all of them or, to a reader, none. Whether it did. One thread at a time; safe in a
    /// signal handler.
    pub fn append(&self, bytes: &[u8]) -> bool {
        let descriptor = match self.descriptor() {
            None if self.descriptor.load(Relaxed) >= 0 => self.open(),
            found => found,
        };
        let Some(descriptor) = descriptor else {
            return false;
        };
        let at = self.length.load(Relaxed);
        // SAFETY: writes initialised bytes to our own file.
        let written = unsafe { libc::pwrite(descriptor, bytes.as_ptr().cast(), bytes.len(), at) };
        let whole = written == bytes.len().cast_signed();
        if whole {
            self.length.store(at + written as i64, Release);
        }
        whole
    }

    /// Where the file begins: what was appended before is gone.
    pub fn start(&self) -> i64 {
        self.start.load(Acquire)
    }

    /// Where it ends.
    pub fn length(&self) -> i64 {
        self.length.load(Acquire)
    }

    /// Reads from an offset between start and end on: how many bytes, or `None` if the file is gone.
    pub fn read(&self, into: &mut [u8], at: i64) -> Option<usize> {
        let left = usize::try_from(self.length() - at).ok()?;
        let count = left.min(into.len());
        // SAFETY: the buffer has room for that many bytes.
        let got = unsafe { libc::pread(self.descriptor()?, into.as_mut_ptr().cast(), count, at) };
        usize::try_from(got).ok()
    }

    /// Gives back the memory of what lies before an offset.
    pub fn forget(&self, before: i64) {
        if let Some(descriptor) = self.descriptor() {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: empties a part of our own file.
            unsafe { libc::fallocate(descriptor, hole, 0, before) };
        }
    }

    /// Closes the file, unless the program has.
    pub fn close(&self) {
        if let Some(descriptor) = self.descriptor() {
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(descriptor) };
        }
        self.descriptor.store(-1, Relaxed);
    }

    /// The descriptor, if it certainly is this file's.
    fn descriptor(&self) -> Option<c_int> {
        let descriptor = self.descriptor.load(Acquire);
        let known = (self.device.load(Relaxed), self.inode.load(Relaxed));
        (descriptor >= 0 && identity(descriptor) == Some(known)).then_some(descriptor)
    }
}

/// Device and inode of an open file.
fn identity(descriptor: c_int) -> Option<(u64, u64)> {
    // SAFETY: zero is a valid value of the struct, which the call fills in.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is a valid place for the answer.
    let asked = unsafe { libc::fstat(descriptor, &raw mut found) };
    (asked == 0).then_some((found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_appended_is_read() {
        let file = MemoryFile::none();
        assert!(!file.append(b"nothing"));
        file.make().unwrap();
        assert!(file.append(b"one") && file.append(b" two"));
        let mut bytes = [0; 20];
        assert_eq!(file.read(&mut bytes, 1), Some(6));
        assert_eq!(&bytes[..6], b"ne two");
        file.forget(3);
        assert_eq!(file.read(&mut bytes, 0), Some(7));
        file.make().unwrap();
        assert_eq!(file.read(&mut bytes, 0), Some(0));
        file.close();
        assert_eq!(file.read(&mut bytes, 0), None);
        assert!(!file.append(b"nothing"));
    }

    #[test]
    fn a_stolen_descriptor_is_left_alone() {
        let file = MemoryFile::none();
        file.make().unwrap();
        assert!(file.append(b"lost"));
        let number = file.descriptor.load(Relaxed);
        let theirs = tempfile::tempfile().unwrap();
        // SAFETY: puts another file under the number, as a program does that closes what it did not open.
        unsafe { libc::dup2(theirs.as_raw_fd(), number) };
        let mut bytes = [0; 20];
        assert_eq!(file.read(&mut bytes, 0), None);
        assert!(file.append(b"kept"));
        assert_eq!((file.start(), file.length()), (4, 8));
        assert_eq!(file.read(&mut bytes, 4), Some(4));
        assert_eq!(&bytes[..4], b"kept");
        file.close();
        assert_eq!(theirs.metadata().unwrap().len(), 0);
        // SAFETY: the number still is the other file's: it was not closed.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
    }
}
