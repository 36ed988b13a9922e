//! The names in a folder, without the C library's `opendir`, which takes memory of the program.

use std::ffi::{CStr, c_int};
use std::mem::offset_of;

/// Room for some dozens of entries, aligned as they are.
type Buffer = [u64; 256];

/// Calls `visit` with each name in an open folder, `.` and `..` too, from where it was read before, until it returns false.
/// `None` if the folder cannot be read.
pub fn for_each_name(folder: c_int, mut visit: impl FnMut(&CStr) -> bool) -> Option<()> {
    let mut buffer: Buffer = [0; 256];
    loop {
        // SAFETY: the buffer has so many bytes.
        let filled = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                folder,
                buffer.as_mut_ptr(),
                size_of::<Buffer>(),
            )
        };
        let filled = usize::try_from(filled).ok()?;
        if filled == 0 {
            return Some(());
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
            if !visit(name) {
                return Some(());
            }
            at += usize::from(length).max(offset_of!(libc::dirent64, d_name));
        }
    }
}
