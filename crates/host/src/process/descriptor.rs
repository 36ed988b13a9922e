//! A file descriptor in the host's process.
//!
//! A program may close descriptors that it did not open: a daemon closes all of them when it starts. The number may
//! then refer to a socket of the program, which would receive our data. So each use first compares the file's device
//! and inode with those stored here, and the descriptor has a high number that programs rarely use.
//!
//! Between the comparison and the use, another thread may still close the descriptor and open its own file under the
//! same number. The writer thread therefore has a table of descriptors of its own; see [`keep_only`].

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::threads::is_writer_thread;

/// The lowest descriptor number that we use. Programs that count on low numbers keep them.
const FIRST_DESCRIPTOR: c_int = 512;

/// Identifies the file that an open descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
}

impl Identity {
    /// The identity of an open descriptor. Safe in a signal handler.
    pub fn of(descriptor: c_int) -> io::Result<Self> {
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

    /// The identity of the file of a name.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        path.metadata().map(|found| Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// Whether `descriptor` still refers to this file.
    pub fn is_of(self, descriptor: c_int) -> bool {
        Self::of(descriptor).is_ok_and(|found| found == self)
    }
}

/// Duplicates a descriptor to a high number that `exec` closes. `None` if there is no free number. Safe in a signal
/// handler.
pub fn duplicate_high(descriptor: c_int) -> Option<c_int> {
    // SAFETY: duplicates a descriptor; a bad one is an error.
    let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
    (high >= 0).then_some(high)
}

/// Opens a file of ours that the program's table has under this number, in the table of the calling thread. `None` if the
/// thread is not the writer thread, whose table is another one ([`keep_only`]); if the number is another file's by now; or
/// without `/proc`.
pub fn open_in_own_table(number: c_int, identity: Identity) -> Option<c_int> {
    // SAFETY: no preconditions.
    if !is_writer_thread(unsafe { libc::gettid() }) {
        return None;
    }
    // The number may be a device's, which an ordinary `open` might change.
    let path = open(&format!("/proc/self/fd/{number}\0"), libc::O_PATH)?;
    let opened = identity
        .is_of(path)
        .then(|| open(&format!("/proc/thread-self/fd/{path}\0"), libc::O_RDWR))
        .flatten();
    // SAFETY: opened above, in this thread's own table.
    unsafe { libc::syscall(libc::SYS_close, path) };
    opened
}

/// Opens a file by its path, which ends with a zero.
fn open(path: &str, flags: c_int) -> Option<c_int> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is terminated. By number, because the C library's function is a cancellation point.
    let opened = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    c_int::try_from(opened).ok().filter(|&number| number >= 0)
}

/// A descriptor in the program's table that refers to a file of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDescriptor {
    /// Its number.
    pub number: c_int,
    /// The file that it was opened for: the program may have closed it, and opened another one.
    pub identity: Identity,
}

impl HostDescriptor {
    /// Closes the descriptor in the table of the calling thread, if it still refers to the file.
    pub fn close(self) {
        if self.identity.is_of(self.number) {
            // SAFETY: the descriptor is ours: it was not closed, or it would not refer to the file.
            unsafe { libc::close(self.number) };
        }
    }
}

/// Gives the calling thread a table of descriptors of its own, in which only `descriptor` is open. No other thread can
/// close it there, and the program's own descriptors do not change. The thread briefly has copies of those below
/// `descriptor`, as the child of a fork has.
///
/// Returns false, and changes nothing, where the kernel cannot do it (before Linux 5.9, or in some sandboxes).
pub fn keep_only(descriptor: c_int) -> bool {
    let Ok(number) = c_uint::try_from(descriptor) else {
        return false;
    };
    let close = |first: c_uint, last: c_uint, flags: c_uint| {
        // SAFETY: `close_range` takes three numbers. The first call leaves the program's table to the other threads, so
        // that the second closes copies only.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
    };
    close(number + 1, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)
        && (number == 0 || close(0, number - 1, 0))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_thread_with_a_table_of_its_own_keeps_one_file() {
        let ours = tempfile::tempfile().unwrap();
        let (low, high) = (File::open("/dev/null").unwrap(), ours.as_raw_fd());
        let after = File::open("/dev/zero").unwrap();
        let identity = Identity::of(high).unwrap();
        let others = [low.as_raw_fd(), after.as_raw_fd(), 0];
        let found = std::thread::spawn(move || {
            assert!(keep_only(high), "needs Linux 5.9");
            let open = others.map(|number| Identity::of(number).is_ok());
            // Not even this closes the descriptor for the other threads.
            let had = identity.is_of(high);
            HostDescriptor {
                number: high,
                identity,
            }
            .close();
            (open, had, identity.is_of(high))
        });
        assert_eq!(found.join().unwrap(), ([false; 3], true, false));
        assert!(identity.is_of(high));
        assert!(others.iter().all(|&number| Identity::of(number).is_ok()));
    }

    #[test]
    fn a_descriptor_of_the_program_is_not_closed() {
        let (ours, theirs) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let identity = Identity::of(ours.as_raw_fd()).unwrap();
        let number = theirs.as_raw_fd();
        HostDescriptor { number, identity }.close();
        assert!(Identity::of(number).is_ok());
    }
}
