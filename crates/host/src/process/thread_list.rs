//! The threads of this process, as the kernel lists them.

use std::ffi::c_int;

use super::descriptor::{HostDescriptor, Identity, duplicate_high};
use super::folder::for_each_name;

/// The folder with the threads of the process that has opened it. It stays open where no file can be opened any more, and
/// where there is no `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct ThreadList {
    folder: HostDescriptor,
    is_high: bool,
}

impl ThreadList {
    /// `None` if the folder cannot be opened.
    #[must_use]
    pub fn open() -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the name is a C string.
        let low = unsafe { libc::open(c"/proc/self/task".as_ptr(), flags) };
        if low < 0 {
            return None;
        }
        let high = duplicate_high(low);
        if high.is_some() {
            // SAFETY: the descriptor was opened here.
            unsafe { libc::close(low) };
        }
        let number = high.unwrap_or(low);
        Identity::of(number).ok().map(|identity| Self {
            folder: HostDescriptor { number, identity },
            is_high: high.is_some(),
        })
    }

    /// Whether the descriptor has a number that a program rarely uses. Others must not stay open: the program would get
    /// other numbers than without it.
    #[must_use]
    pub const fn is_out_of_the_way(self) -> bool {
        self.is_high
    }

    /// Whether there is a thread of which `is_known` is not true. It is asked for the system's number of each.
    /// `None` if the list cannot be read, or if the program has closed the folder.
    pub fn has_others(self, is_known: impl Fn(c_int) -> bool) -> Option<bool> {
        let number = self.folder.number;
        if !self.folder.identity.is_of(number) {
            return None;
        }
        // SAFETY: moves in an open folder.
        if unsafe { libc::lseek(number, 0, libc::SEEK_SET) } != 0 {
            return None;
        }
        // A thread asks, so an empty list is none.
        let mut answer = None;
        for_each_name(number, |name| {
            // The folder itself and the one above have no numbers.
            let thread = name.to_str().ok().and_then(|name| name.parse().ok());
            answer = thread.map(|thread| !is_known(thread)).or(answer);
            answer != Some(true)
        })?;
        answer
    }

    /// Closes the folder, unless the program has.
    pub fn close(self) {
        self.folder.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_is_in_the_list_until_it_ends() {
        let list = ThreadList::open().unwrap();
        assert!(list.is_out_of_the_way());
        assert_eq!(list.has_others(|_| true), Some(false));
        // More than fit in the buffer.
        let threads = [(); 100].map(|()| {
            let ((here, number), (end, ended)) = (channel(), channel::<()>());
            let thread = std::thread::spawn(move || {
                // SAFETY: no preconditions.
                here.send(unsafe { libc::gettid() }).unwrap();
                ended.recv().unwrap_err();
            });
            (number.recv().unwrap(), thread, end)
        });
        for (number, thread, end) in threads {
            // The list may end early where a thread of another test ends.
            assert!((0..1000).any(|_| list.has_others(|one| one != number) == Some(true)));
            drop(end);
            thread.join().unwrap();
            // The system still lists it for some microseconds.
            while list.has_others(|one| one != number) == Some(true) {
                std::thread::yield_now();
            }
        }
        list.close();
        assert_eq!(list.has_others(|_| true), None);
    }
}
