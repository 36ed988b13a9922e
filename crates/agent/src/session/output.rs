//! The profile's file, in a process that is not ours.
//!
//! A program may close descriptors that it did not open: a daemon closes all of them when it
//! starts. The number may then belong to a socket of the program, and what is written to it would
//! go there. So the file is known by its device and inode, and looked at before each write; if the
//! descriptor is not ours any more, the file is opened again by its name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Descriptors from here on are out of the way of programs that count on low numbers.
const FIRST_DESCRIPTOR: libc::c_int = 512;

pub(super) struct Output {
    file: Option<File>,
    identity: (u64, u64),
    path: PathBuf,
}

impl Output {
    /// Makes the file, empty and private.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = out_of_the_way(nthbyte_profile::create(path)?);
        let identity = identity(&file)?;
        Ok(Self {
            file: Some(file),
            identity,
            path: path.to_owned(),
        })
    }

    /// The file, through a descriptor that certainly is the file's.
    fn file(&mut self) -> io::Result<&mut File> {
        if !self.is_ours() {
            self.disown();
            let file = OpenOptions::new()
                .append(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&self.path)?;
            if identity(&file)? != self.identity {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the file was replaced by another",
                ));
            }
            self.file = Some(out_of_the_way(file));
        }
        self.file
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_ours(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| identity(file).is_ok_and(|found| found == self.identity))
    }

    /// Forgets the descriptor without closing it: the number may be the program's by now.
    fn disown(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = file.into_raw_fd();
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_ours() {
            self.disown();
        }
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

/// The same open file under a high number, if there is one to be had.
fn out_of_the_way(file: File) -> File {
    // SAFETY: duplicates a descriptor that `file` keeps open meanwhile.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
    if high < 0 {
        return file;
    }
    // SAFETY: the descriptor is new and nobody else's.
    unsafe { File::from_raw_fd(high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stolen_descriptor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut output = Output::create(&ours).unwrap();
        output.write_all(b"one").unwrap();

        let number = output.file.as_ref().unwrap().as_raw_fd();
        let other = File::create(&theirs).unwrap();
        // SAFETY: puts another file under the number, as a program does that closes what it did not open.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        output.write_all(b", two").unwrap();
        drop(output);

        assert_eq!(std::fs::read(&ours).unwrap(), b"one, two");
        assert_eq!(std::fs::read(&theirs).unwrap(), b"");
        // SAFETY: the number still is the other file's: it was not closed.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
    }
}
