//! Reading this process's memory at addresses of which it is not certain that there is any.

use std::ffi::c_void;

/// Copies up to `into.len()` bytes from an address; says how many could be read. The kernel copies, and answers
/// a bad address with an error instead of a fault. `process` is this process's number.
pub fn read(process: libc::pid_t, address: usize, into: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    // SAFETY: `local` is a place of that length; `remote` is checked by the kernel.
    let got =
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(got).unwrap_or(0)
}
