//! Files in memory.

use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::Ordering::Relaxed;

use super::MemoryFile;
use crate::memory::page_size;

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
fn a_rewound_file_uses_its_memory_again() {
    let file = MemoryFile::none();
    file.make().unwrap();
    assert!(file.append(b"one two"));
    file.rewind();
    assert_eq!((file.start(), file.length()), (7, 7));
    let mut bytes = [0; 20];
    assert_eq!(file.read(&mut bytes, 6), None);
    assert!(file.append(b"three"));
    assert_eq!(file.read(&mut bytes, 7), Some(5));
    assert_eq!(&bytes[..5], b"three");
    // At the beginning.
    // SAFETY: a duplicate of the file's descriptor, which is closed here.
    let same = unsafe { std::fs::File::from_raw_fd(libc::dup(file.descriptor.load(Relaxed))) };
    assert_eq!(same.metadata().unwrap().len(), 7);
    file.forget(10);
    assert_eq!(file.read(&mut bytes, 10), Some(2));
    assert_eq!(&bytes[..2], b"ee");
    file.close();
}

#[test]
fn memory_that_is_not_there_is_no_error() {
    let page = page_size();
    // SAFETY: two new pages, of which the second is not readable.
    let pages = unsafe {
        let pages = libc::mmap(
            std::ptr::null_mut(),
            2 * page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(pages, libc::MAP_FAILED);
        pages.cast::<u8>().write_bytes(7, page);
        assert_eq!(libc::mprotect(pages.add(page), page, libc::PROT_NONE), 0);
        pages as usize
    };
    let end = pages + page;
    let file = MemoryFile::none();
    let mut header = *b"ab????????";
    assert!(!file.append_with_memory(&mut header, b"nothing", &(0..0)));
    file.make().unwrap();
    let mut at = 0;
    for (memory, readable) in [
        (end - 5..end, 5),
        (end - 5..end + 6, 5),
        (pages + 1..end + page, page - 1),
        (end..end + 6, 0),
        (8..16, 0),
        (0..0, 0),
    ] {
        assert!(file.append_with_memory(&mut header, b"xyz", &memory));
        let mut bytes = vec![0; 2 * page];
        let length = 10 + 3 + readable;
        assert_eq!(file.read(&mut bytes, at), Some(length), "{memory:x?}");
        assert_eq!(&bytes[..2], b"ab");
        assert_eq!(bytes[2..10], (readable as u64).to_ne_bytes());
        assert_eq!(&bytes[10..13], b"xyz");
        assert!(bytes[13..length].iter().all(|&byte| byte == 7));
        at += length as i64;
    }
    assert!(!file.append_with_memory(&mut [], b"no room for the number", &(0..0)));
    file.close();
    // SAFETY: unmaps the pages from above.
    unsafe { libc::munmap(pages as *mut _, 2 * page) };
}

#[test]
fn a_stolen_descriptor_is_left_alone() {
    let file = MemoryFile::none();
    file.make().unwrap();
    assert!(file.append(b"lost"));
    let number = file.descriptor.load(Relaxed);
    let theirs = tempfile::tempfile().unwrap();
    // SAFETY: replaces the descriptor, like a program that closes descriptors that it did not open.
    unsafe { libc::dup2(theirs.as_raw_fd(), number) };
    let mut bytes = [0; 20];
    assert_eq!(file.read(&mut bytes, 0), None);
    assert!(file.append(b"kept"));
    assert_eq!((file.start(), file.length()), (4, 8));
    assert_eq!(file.read(&mut bytes, 0), None);
    assert_eq!(file.read(&mut bytes, 4), Some(4));
    assert_eq!(&bytes[..4], b"kept");
    file.close();
    assert_eq!(theirs.metadata().unwrap().len(), 0);
    // SAFETY: the number still refers to the other file, which was not closed.
    assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
}
