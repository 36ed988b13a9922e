//! This process's memory: how much there is, and what is at addresses of which it is not certain that there is any.

use std::ffi::c_void;
use std::io::Read;

use nthbyte_profile::event::Nanos;

/// How old a reading of the resident set size may be: a sixteenth of the session, within these limits. Opening the
/// file takes 7 µs, and 45 µs when the caches hold the program's data.
const RSS_AGES: (u64, u64) = (100_000_000, 250_000_000);

/// The resident set size, read now and then.
#[derive(Debug, Default)]
pub struct ResidentSet {
    read: Option<(Nanos, u64)>,
}

impl ResidentSet {
    /// In bytes, as old as [`RSS_AGES`] allow: from the second number of `/proc/self/statm`; `None` if that cannot be read.
    /// No descriptor is kept: see `session::output`.
    pub fn size(&mut self, now: Nanos) -> Option<u64> {
        let (least, most) = RSS_AGES;
        if let Some((read, size)) = self.read
            && now.0.saturating_sub(read.0) < (now.0 / 16).clamp(least, most)
        {
            return Some(size);
        }
        let mut text = [0u8; 128];
        let mut file = std::fs::File::open("/proc/self/statm").ok()?;
        let got = file.read(&mut text).ok()?;
        let text = std::str::from_utf8(&text[..got]).ok()?;
        let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        // SAFETY: no preconditions.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        self.read = Some((now, pages * page));
        Some(pages * page)
    }
}

/// Has what is at an address fetched into the cache: it will be needed.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

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
