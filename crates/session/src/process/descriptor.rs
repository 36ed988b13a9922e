//! A file descriptor in the host's process.
//!
//! A program may close descriptors that it did not open: a daemon closes all of them when it starts. The number may
//! then refer to a socket of the program, which would receive our data. So each use first compares the file's device
//! and inode with those stored here, and the descriptor has a high number that programs rarely use.

use std::ffi::c_int;
use std::io;

/// The lowest descriptor number that we use. Programs that count on low numbers keep them.
const FIRST_DESCRIPTOR: c_int = 512;

/// Identifies the file that an open descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub device: u64,
    pub inode: u64,
}

impl Identity {
    /// The identity of an open descriptor. Safe in a signal handler.
    pub(crate) fn of(descriptor: c_int) -> io::Result<Self> {
        // SAFETY: zero is a valid value of the struct, which the call fills in.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the struct is a valid place for the answer.
        match unsafe { libc::fstat(descriptor, &raw mut found) } {
            0 => Ok(Self {
                device: found.st_dev,
                inode: found.st_ino,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether `descriptor` still refers to this file.
    pub(crate) fn is_of(self, descriptor: c_int) -> bool {
        Self::of(descriptor).is_ok_and(|found| found == self)
    }
}

/// Duplicates a descriptor to a high number that `exec` closes. `None` if there is no free number. Safe in a signal
/// handler.
pub(crate) fn duplicate_high(descriptor: c_int) -> Option<c_int> {
    // SAFETY: duplicates a descriptor; a bad one is an error.
    let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
    (high >= 0).then_some(high)
}
