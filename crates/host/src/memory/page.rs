//! The size of OS pages.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The smallest size that an OS page has, in bytes: for tables and alignments that are made when this is compiled.
pub const SMALLEST_PAGE: usize = 4096;

/// The size of an OS page in bytes: 4, 16 or 64 KiB. Costs one load after the first call. Safe in a signal handler.
#[inline]
#[must_use]
pub fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Relaxed) {
        0 => {
            let size = ask();
            SIZE.store(size, Relaxed);
            size
        }
        known => known,
    }
}

#[cold]
fn ask() -> usize {
    // SAFETY: no preconditions. The C library knows it from the process's start, and changes no `errno`.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(SMALLEST_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_power_of_two() {
        assert!(page_size().is_power_of_two() && page_size() >= SMALLEST_PAGE);
        assert_eq!(page_size(), ask());
    }
}
