//! Files in memory.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use super::MemoryFile;

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
