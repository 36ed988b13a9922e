//! The profile's file, inside the host's process.
//!
//! The program may close the descriptor (see [`nthbyte_host::process`]). So each write first checks the descriptor; if it no
//! longer refers to the profile, the file is opened again by its name. The writer thread has a copy of the descriptor
//! that the program cannot close (see [`Output::take_along`]).
//!
//! The end of the file may be provisional: the next write overwrites it. Making a new provisional end takes some time.
//! The old end stays in the file meanwhile: new data is held, and is written together with the new end.
//!
//! Another program may truncate the file, as `logrotate` does with `copytruncate`. The lost data cannot be replaced,
//! and a write behind it would leave a hole, so the file gets no more data. The length is checked before each write,
//! and the [`tail`] after it.

mod tail;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nthbyte_host::process::{HostDescriptor, Identity, duplicate_high, keep_only};
use nthbyte_profile::names;

use tail::{Tail, cut_before_hole};

pub(crate) struct Output {
    file: Option<File>,
    identity: Identity,
    path: PathBuf,
    /// Whether the file can be truncated: false for a pipe or a device.
    can_shrink: bool,
    /// The file's length without the provisional end.
    length: u64,
    /// The last bytes of that length.
    tail: Tail,
    /// Whether the file has a provisional end.
    is_provisional: bool,
    /// Data since [`Output::hold`].
    held: Option<Vec<u8>>,
}

impl Output {
    /// Creates the file, in place of this user's file of that name: empty, and readable by its owner only.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Self::of(nthbyte_profile::create(path)?, path)
    }

    /// Opens the file that was claimed.
    pub(crate) fn adopt(path: &Path) -> io::Result<Self> {
        Self::of(nthbyte_profile::claim::adopt(path)?, path)
    }

    /// The same as [`Output::create`] for a name that nobody has claimed: if there is a file, the next free name is taken.
    pub(crate) fn create_new(path: &Path) -> io::Result<Self> {
        let (file, taken) = names::first_free(path, nthbyte_profile::create_new)?;
        Self::of(file, &taken)
    }

    fn of(file: File, path: &Path) -> io::Result<Self> {
        let file = out_of_the_way(file);
        let identity = Identity::of(file.as_raw_fd())?;
        if Identity::of_path(path)? != identity {
            // The number belongs to the program.
            let _ = file.into_raw_fd();
            return Err(io::Error::other("another thread closed the new file"));
        }
        let can_shrink = file.metadata()?.is_file();
        Ok(Self {
            file: Some(file),
            identity,
            path: path.to_owned(),
            can_shrink,
            length: 0,
            tail: Tail::default(),
            is_provisional: false,
            held: None,
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is.
    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// The file has another name from now on.
    pub(crate) fn has_moved(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Gives the calling thread a table of descriptors of its own, with only this file. Only the writer thread calls it.
    /// Returns the descriptor that stays in the program's table, for when the thread has ended; `None` where threads
    /// cannot have tables of their own.
    pub(crate) fn take_along(&mut self) -> Option<HostDescriptor> {
        let (number, identity) = (self.file.as_ref()?.as_raw_fd(), self.identity);
        if !keep_only(number) {
            return None;
        }
        if !self.is_ours() {
            // What the program has put there. This closes the thread's copy.
            self.file = None;
            return None;
        }
        Some(HostDescriptor { number, identity })
    }

    /// If the file has a provisional end, holds all later data until [`Output::write_provisional`] or
    /// [`Output::release`].
    pub(crate) fn hold(&mut self) {
        if self.is_provisional {
            self.held = Some(Vec::new());
        }
    }

    /// Writes the held data, if any, over the provisional end.
    ///
    /// # Errors
    /// The errors of the file. The held data is lost then.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(held) if !held.is_empty() => self.write_all(&held),
            _ => Ok(()),
        }
    }

    /// Writes the held data, and an end that the next write overwrites. A reader finds either the old end or the new
    /// one. If the disk has no room for the new end, the file has none.
    ///
    /// # Errors
    /// The errors of the file. The held data is lost then.
    pub(crate) fn write_provisional(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.can_shrink {
            return self.release();
        }
        let held = self.held.take().unwrap_or_default();
        let all = [&held, bytes].concat();
        self.is_provisional = true;
        if self.overwrite(&all).is_ok() {
            self.length += held.len() as u64;
            self.tail.push(&held);
            return Ok(());
        }
        self.take_back()?;
        self.write_all(&held)
    }

    /// Ends the file with these bytes after an error: at the first of the places where the disk has room for them. What
    /// lies there already has its room on a full disk. Returns whether they lie at the second place, over what was there.
    pub(crate) fn write_last_words(&mut self, bytes: &[u8], places: [Option<u64>; 2]) -> bool {
        self.held = None;
        if !self.can_shrink {
            return false;
        }
        // The bytes before these places are not known.
        self.tail = Tail::default();
        places.into_iter().position(|place| {
            self.length = place.unwrap_or(self.length);
            place.is_some() && self.overwrite(bytes).is_ok()
        }) == Some(1)
    }

    /// Writes bytes over the provisional end, without holding them.
    fn overwrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        let start = self.length;
        let file = self.file()?;
        file.write_all_at(bytes, start)?;
        file.set_len(start + bytes.len() as u64)?;
        self.check_tail()
    }

    /// Whether the file has a provisional end.
    pub(crate) const fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Has the kernel write to the disk what the file has. Where that fails, nothing is lost but by a machine that stops.
    pub(crate) fn sync(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.sync_data();
        }
    }

    /// Truncates the file before the provisional end.
    fn take_back(&mut self) -> io::Result<()> {
        if self.is_provisional {
            let length = self.length;
            self.file()?.set_len(length)?;
            self.is_provisional = false;
        }
        Ok(())
    }

    /// The file. Its descriptor has just been checked, or is new.
    fn file(&mut self) -> io::Result<&mut File> {
        if !self.is_ours() {
            self.disown();
            let file = OpenOptions::new()
                .read(self.can_shrink)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&self.path)?;
            if Identity::of(file.as_raw_fd())? != self.identity {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the file was replaced by another",
                ));
            }
            self.file = Some(out_of_the_way(file));
        }
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if self.can_shrink && file.metadata()?.len() < self.length {
            return Err(truncated());
        }
        Ok(file)
    }

    /// After a write: whether another program has truncated the file just before it.
    fn check_tail(&self) -> io::Result<()> {
        match &self.file {
            Some(file) if self.can_shrink && !self.tail.is_before(file, self.length) => {
                // Even with the hole, the file's beginning can be read.
                let _ = cut_before_hole(file, self.length);
                Err(truncated())
            }
            _ => Ok(()),
        }
    }

    fn is_ours(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| self.identity.is_of(file.as_raw_fd()))
    }

    /// Forgets the descriptor without closing it: its number may now belong to the program.
    fn disown(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = file.into_raw_fd();
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        self.take_back()?;
        let (length, can_seek) = (self.length, self.can_shrink);
        let file = self.file()?;
        let written = match can_seek {
            true => file.write_at(bytes, length)?,
            false => file.write(bytes)?,
        };
        self.check_tail()?;
        self.length += written as u64;
        self.tail.push(&bytes[..written]);
        Ok(written)
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

fn truncated() -> io::Error {
    io::Error::other("another program has truncated the file")
}

/// The same open file under a high descriptor number, if one is available.
fn out_of_the_way(file: File) -> File {
    match duplicate_high(file.as_raw_fd()) {
        None => file,
        // SAFETY: the descriptor is new, and no other code owns it.
        Some(high) => unsafe { File::from_raw_fd(high) },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_stolen_descriptor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut output = Output::create(&ours).unwrap();
        output.write_all(b"one").unwrap();

        let number = output.file.as_ref().unwrap().as_raw_fd();
        let other = File::create(&theirs).unwrap();
        // SAFETY: replaces the descriptor, like a program that closes descriptors that it did not open.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        output.write_all(b", two").unwrap();
        drop(output);

        assert_eq!(std::fs::read(&ours).unwrap(), b"one, two");
        assert_eq!(std::fs::read(&theirs).unwrap(), b"");
        // SAFETY: the number still refers to the other file, which was not closed.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
    }

    #[test]
    fn nothing_is_written_to_a_file_that_takes_the_descriptor_at_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut output = Output::create(&ours).unwrap();
        let number = output.file.as_ref().unwrap().as_raw_fd();
        let other = File::create(&theirs).unwrap();
        let is_ready = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                output.take_along().expect("needs Linux 5.9");
                is_ready.store(true, Relaxed);
                for _ in 0..20_000 {
                    output.write_all(b"x").unwrap();
                }
            });
            let ours = File::open(&ours).unwrap();
            while !is_ready.load(Relaxed) && !writer.is_finished() {
                std::thread::yield_now();
            }
            while !writer.is_finished() {
                for file in [&other, &ours] {
                    // SAFETY: replaces the descriptor in this thread's table.
                    unsafe { libc::dup2(file.as_raw_fd(), number) };
                }
            }
        });
        assert_eq!(std::fs::read(&ours).unwrap().len(), 20_000);
        assert_eq!(std::fs::read(&theirs).unwrap(), b"");
    }

    #[test]
    fn the_thread_does_not_keep_a_file_of_the_program_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let mut output = Output::create(&path).unwrap();
        let number = output.file.as_ref().unwrap().as_raw_fd();
        let theirs = File::create(folder.path().join("theirs")).unwrap();
        // SAFETY: replaces the descriptor, like a program that closes descriptors that it did not open.
        unsafe { libc::dup2(theirs.as_raw_fd(), number) };
        let thread = std::thread::spawn(move || {
            assert_eq!(output.take_along(), None);
            let is_open = Identity::of(number).is_ok();
            output.write_all(b"one").unwrap();
            is_open
        });
        assert!(!thread.join().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
    }

    #[test]
    fn a_file_of_the_same_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"one").unwrap();
        // The program closes the descriptor, and puts another file in the place of ours.
        let number = output.file.as_ref().unwrap().as_raw_fd();
        // SAFETY: closes the descriptor, like a program that closes descriptors that it did not open.
        unsafe { libc::close(number) };
        // The old file stays: another one must not get the same inode.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        std::fs::write(&path, b"theirs").unwrap();
        let refused = output.write_all(b", two").unwrap_err();
        assert!(refused.to_string().contains("replaced"), "{refused}");
        assert!(output.write_provisional(b", three").is_err());
        drop(output);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        // A link that leads to our file is not followed either.
        std::fs::remove_file(&path).unwrap();
        let mut output = Output::create(&path).unwrap();
        let number = output.file.as_ref().unwrap().as_raw_fd();
        // SAFETY: as above.
        unsafe { libc::close(number) };
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", &path).unwrap();
        assert!(output.write_all(b"two").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_provisional_end_gives_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let read = || std::fs::read_to_string(&path).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"one").unwrap();
        output.write_provisional(b", perhaps two").unwrap();
        assert_eq!(read(), "one, perhaps two");
        output.write_provisional(b", or three").unwrap();
        assert_eq!(read(), "one, or three");
        output.write_all(b", four").unwrap();
        output.write_all(b", five").unwrap();
        assert_eq!(read(), "one, four, five");

        // The old end stays until the new one replaces it.
        output
            .write_provisional(b", a long provisional end")
            .unwrap();
        output.hold();
        output.write_all(b", five and a half").unwrap();
        assert_eq!(read(), "one, four, five, a long provisional end");
        output.write_provisional(b"?").unwrap();
        assert_eq!(read(), "one, four, five, five and a half?");
        output.hold();
        output.release().unwrap();
        assert_eq!(read(), "one, four, five, five and a half?");
        output.hold();
        output.write_all(b"!").unwrap();
        output.release().unwrap();
        assert_eq!(read(), "one, four, five, five and a half!");

        // A provisional end also works after the descriptor was lost.
        output.write_provisional(b"?").unwrap();
        let number = output.file.as_ref().unwrap().as_raw_fd();
        let other = File::open("/dev/null").unwrap();
        // SAFETY: as above.
        unsafe { libc::dup2(other.as_raw_fd(), number) };
        output.write_all(b", six").unwrap();
        assert_eq!(read(), "one, four, five, five and a half!, six");
    }

    #[test]
    fn a_file_that_another_program_truncates_gets_no_hole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let read = || std::fs::read(&path).unwrap();
        for provisional in [false, true] {
            let mut output = Output::create(&path).unwrap();
            output.write_all(b"one, two").unwrap();
            if provisional {
                output.write_provisional(b", perhaps three").unwrap();
            }
            let other = OpenOptions::new().write(true).open(&path).unwrap();
            other.set_len(4).unwrap();
            let refused = output.write_all(b", three").unwrap_err();
            assert!(refused.to_string().contains("truncated"), "{refused}");
            assert!(output.write_provisional(b", perhaps").is_err());
            assert_eq!(read(), b"one,");
            output.write_last_words(b"!", [Some(8), Some(5)]);
            assert_eq!(read(), b"one,");
            output.write_last_words(b" end", [Some(8), Some(4)]);
            assert_eq!(read(), b"one, end");
        }
        // The provisional end alone may be missing: the next write replaces it anyway.
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"one").unwrap();
        output.write_provisional(b", perhaps two").unwrap();
        let other = OpenOptions::new().write(true).open(&path).unwrap();
        other.set_len(5).unwrap();
        output.write_all(b", two").unwrap();
        assert_eq!(read(), b"one, two");
    }

    /// What a truncation between the look at the length and the write leaves.
    #[test]
    fn a_hole_behind_a_truncated_file_is_noticed_and_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        for (length, left) in [(8, 4), (100_000, 4), (100_000, 40_960), (100_000, 99_999)] {
            for provisional in [false, true] {
                let mut output = Output::create(&path).unwrap();
                for part in vec![b'x'; length].chunks(7) {
                    output.write_all(part).unwrap();
                }
                let other = OpenOptions::new().write(true).open(&path).unwrap();
                other.set_len(left).unwrap();
                other.set_len(length as u64).unwrap();
                let refused = if provisional {
                    output.write_provisional(b", perhaps").unwrap_err()
                } else {
                    output.write_all(b", three").unwrap_err()
                };
                assert!(refused.to_string().contains("truncated"), "{refused}");
                assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; left as usize]);
            }
        }
        // Zeroes that were written are no hole.
        let mut output = Output::create(&path).unwrap();
        for zeroes in 0..20 {
            output.write_all(&vec![0; zeroes]).unwrap();
            output.write_provisional(b"end").unwrap();
        }
        assert_eq!(output.length, 190);
    }

    #[test]
    fn a_device_has_no_provisional_end() {
        let mut output = Output::create(Path::new("/dev/null")).unwrap();
        output.write_provisional(b"perhaps").unwrap();
        output.write_all(b"certainly").unwrap();
    }
}
