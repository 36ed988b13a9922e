//! Files in memory that a signal handler may append to.
//!
//! If the program closes the descriptor (see [`super::descriptor`]), the next append creates another file. That file
//! continues at the offset where the previous one ended.

use std::ffi::c_int;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::descriptor::{Identity, duplicate_high};
use crate::sync::{AtomicI32, AtomicI64, AtomicU64, constant};

/// A file in memory, or none.
pub struct MemoryFile {
    pub(super) descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Data before this offset is no longer available.
    start: AtomicI64,
    length: AtomicI64,
}

impl MemoryFile {
    constant! {
        /// No file.
        #[must_use]
        pub const fn none() -> Self {
            Self {
                descriptor: AtomicI32::new(-1),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
                start: AtomicI64::new(0),
                length: AtomicI64::new(0),
            }
        }
    }

    /// Replaces the previous file with an empty one. No thread may append meanwhile.
    ///
    /// # Errors
    /// There is no free descriptor, or no memory.
    pub fn make(&self) -> io::Result<()> {
        self.close();
        self.length.store(0, Relaxed);
        match self.open() {
            Some(_) => Ok(()),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Opens a file that begins where the previous one ended. Safe in a signal handler.
    fn open(&self) -> Option<c_int> {
        // SAFETY: the name is a terminated string.
        let low = unsafe { libc::memfd_create(c"nthbyte".as_ptr(), libc::MFD_CLOEXEC) };
        let Identity { device, inode } = Identity::of(low).ok()?;
        let descriptor = match duplicate_high(low) {
            None => low,
            Some(high) => {
                // SAFETY: the descriptor is ours, made above.
                unsafe { libc::close(low) };
                high
            }
        };
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.start.store(self.length(), Relaxed);
        self.descriptor.store(descriptor, Release);
        Some(descriptor)
    }

    /// Appends bytes, and returns whether they were appended: a reader sees all of them or none. Only one thread may
    /// append at a time. Safe in a signal handler.
    pub fn append(&self, bytes: &[u8]) -> bool {
        self.append_both(bytes, &[])
    }

    /// Appends two pieces one after the other with one system call. Otherwise the same as [`MemoryFile::append`].
    pub fn append_both(&self, first: &[u8], second: &[u8]) -> bool {
        let descriptor = match self.descriptor() {
            None if self.descriptor.load(Relaxed) >= 0 => self.open(),
            found => found,
        };
        let Some(descriptor) = descriptor else {
            return false;
        };
        let at = self.length.load(Relaxed);
        let pieces = [first, second].map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        });
        // SAFETY: writes initialised bytes to our own file.
        let written = unsafe { libc::pwritev(descriptor, pieces.as_ptr(), 2, at) };
        let is_whole = written == (first.len() + second.len()).cast_signed();
        if is_whole {
            self.length.store(at + written as i64, Release);
        }
        is_whole
    }

    /// The offset at which the file begins. Data before it is no longer available.
    #[must_use]
    pub fn start(&self) -> i64 {
        self.start.load(Acquire)
    }

    /// The offset at which the file ends.
    #[must_use]
    pub fn length(&self) -> i64 {
        self.length.load(Acquire)
    }

    /// Reads from an offset between start and end. Returns the number of bytes, or `None` if the file is lost. Another
    /// thread may append meanwhile.
    pub fn read(&self, into: &mut [u8], at: i64) -> Option<usize> {
        let descriptor = self.descriptor()?;
        // The file may have replaced the one in which this offset was, and has a hole in its place.
        if at < self.start() {
            return None;
        }
        let left = usize::try_from(self.length() - at).ok()?;
        let count = left.min(into.len());
        // SAFETY: the buffer has room for that many bytes.
        let got = unsafe { libc::pread(descriptor, into.as_mut_ptr().cast(), count, at) };
        usize::try_from(got).ok()
    }

    /// Frees the memory of all data before an offset.
    pub fn forget(&self, before: i64) {
        if let Some(descriptor) = self.descriptor() {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: empties a part of our own file.
            unsafe { libc::fallocate(descriptor, hole, 0, before) };
        }
    }

    /// Closes the file, unless the program has closed it.
    pub fn close(&self) {
        if let Some(descriptor) = self.descriptor() {
            // SAFETY: the descriptor is ours.
            unsafe { libc::close(descriptor) };
        }
        self.descriptor.store(-1, Relaxed);
    }

    /// The descriptor, if it still refers to this file.
    fn descriptor(&self) -> Option<c_int> {
        let descriptor = self.descriptor.load(Acquire);
        let known = Identity {
            device: self.device.load(Relaxed),
            inode: self.inode.load(Relaxed),
        };
        (descriptor >= 0 && known.is_of(descriptor)).then_some(descriptor)
    }
}
