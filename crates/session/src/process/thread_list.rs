//! The threads of this process, as the kernel lists them.

use std::ffi::{CStr, c_int};
use std::mem::offset_of;

use super::descriptor::{HostDescriptor, Identity, duplicate_high};

/// Room for some dozens of entries, aligned as they are.
type Buffer = [u64; 256];

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

    /// Whether there is a thread besides those of which `is_known` is true. It is asked for the system's number of each.
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
        let mut buffer: Buffer = [0; 256];
        let mut count = 0;
        loop {
            // SAFETY: the buffer has so many bytes.
            let filled = unsafe {
                libc::syscall(
                    libc::SYS_getdents64,
                    number,
                    buffer.as_mut_ptr(),
                    size_of::<Buffer>(),
                )
            };
            let filled = usize::try_from(filled).ok()?;
            if filled == 0 {
                // A thread asks, so an empty list is none.
                return (count > 0).then_some(false);
            }
            let mut at = 0;
            while at < filled {
                // SAFETY: the kernel has written whole entries, of which each begins with its length and ends with a
                // name that is a C string.
                let (length, name) = unsafe {
                    let entry = buffer.as_ptr().byte_add(at).cast::<libc::dirent64>();
                    let name = (&raw const (*entry).d_name).cast();
                    ((&raw const (*entry).d_reclen).read(), CStr::from_ptr(name))
                };
                // The folder itself and the one above have no numbers.
                if let Some(thread) = name.to_str().ok().and_then(|name| name.parse().ok()) {
                    count += 1;
                    if !is_known(thread) {
                        return Some(true);
                    }
                }
                at += usize::from(length).max(offset_of!(libc::dirent64, d_name));
            }
        }
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
            assert_eq!(list.has_others(|one| one != number), Some(true));
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
