//! Memory of the system, as mappings, and the size of its pages.
//!
//! None is the C library's: see `pool`. And when `free` gets a large block, larger ones come from glibc's heap from
//! then on, which keeps more of what the program frees (`M_MMAP_THRESHOLD` in mallopt(3)): the program's memory would depend
//! on ours. The mappings are made by the kernel's number, because calls of `mmap` may be the program's to record.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// The smallest size that an OS page has, in bytes: for tables and alignments that are made when this is compiled.
pub const SMALLEST_PAGE: usize = 4096;

/// Whether large mappings are huge pages where the kernel has them.
static PREFERS_HUGE: AtomicBool = AtomicBool::new(false);
/// Of so many bytes: of a smaller one, the last huge page would be half of it.
const LARGE: usize = 8 << 20;

/// Makes large mappings huge pages from now on, where the kernel has them: for a process that looks at most of its memory, and
/// lives for a moment.
pub fn prefer_huge_pages() {
    PREFERS_HUGE.store(true, Relaxed);
}

/// Maps so many bytes of zeroes. Null if there is no memory.
#[cold]
pub fn map(size: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (anywhere, no_file, offset) = (0_usize, -1_isize, 0_usize);
    // SAFETY: a new mapping, which replaces nothing.
    let start = pointer(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            anywhere,
            size,
            access,
            kind,
            no_file,
            offset,
        )
    });
    if size >= LARGE && !start.is_null() && PREFERS_HUGE.load(Relaxed) {
        // SAFETY: it changes how the kernel backs the new mapping, not its content.
        unsafe { libc::syscall(libc::SYS_madvise, start, size, libc::MADV_HUGEPAGE) };
    }
    start
}

/// Maps so many bytes of zeroes, a power of two, at a multiple of that. Null if there is no memory.
pub fn map_aligned(size: usize) -> *mut u8 {
    // It has such a place in it.
    let around = map(2 * size);
    if around.is_null() {
        return around;
    }
    let before = (around as usize).next_multiple_of(size) - around as usize;
    let start = around.wrapping_add(before);
    // SAFETY: nobody uses the rest of the mapping.
    unsafe {
        for (rest, bytes) in [(around, before), (start.wrapping_add(size), size - before)] {
            if bytes > 0 {
                unmap(rest, bytes);
            }
        }
    }
    start
}

/// # Safety
/// A mapping of [`map`] or [`remap`], which is not in use.
#[cold]
pub unsafe fn unmap(start: *mut u8, size: usize) {
    // SAFETY: by the contract.
    unsafe { libc::syscall(libc::SYS_munmap, start, size) };
}

/// # Safety
/// A mapping of [`map`] or of this function.
#[cold]
pub unsafe fn remap(start: *mut u8, size: usize, new: usize) -> *mut u8 {
    // SAFETY: by the contract; what moves is the mapping.
    pointer(unsafe { libc::syscall(libc::SYS_mremap, start, size, new, libc::MREMAP_MAYMOVE) })
}

/// Lets nobody access OS pages any more. Returns false if the kernel refuses that.
///
/// # Safety
/// They are memory of this library, which nobody uses until they are opened.
#[cold]
pub unsafe fn close(start: *mut u8, size: usize) -> bool {
    // SAFETY: by the contract.
    unsafe { libc::syscall(libc::SYS_mprotect, start, size, libc::PROT_NONE) == 0 }
}

/// Lets everybody read and write OS pages. Returns false if the kernel refuses that.
///
/// # Safety
/// They are memory of this library.
#[cold]
pub unsafe fn open(start: *mut u8, size: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the contract.
    unsafe { libc::syscall(libc::SYS_mprotect, start, size, access) == 0 }
}

/// Whether writable memory is limited (`ulimit -d`).
#[cold]
pub fn has_data_limit() -> bool {
    // SAFETY: zeroes are a valid `rlimit`, which the call fills.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_DATA, &raw mut limit) != 0
            || limit.rlim_cur != libc::RLIM_INFINITY
    }
}

/// The address that a call of the kernel has returned; null for an error.
fn pointer(result: libc::c_long) -> *mut u8 {
    if result == -1 {
        return null_mut();
    }
    std::ptr::with_exposed_provenance_mut(result as usize)
}

/// The size of an OS page in bytes: 4, 16 or 64 KiB. Costs one load after the first call. Safe in a signal handler.
#[inline]
#[must_use]
pub fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Relaxed) {
        0 => {
            let size = ask_page_size();
            SIZE.store(size, Relaxed);
            size
        }
        known => known,
    }
}

#[cold]
fn ask_page_size() -> usize {
    // SAFETY: no preconditions. The C library knows it from the process's start, and changes no `errno`.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(SMALLEST_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_aligned_and_whole() {
        for size in [page_size(), 1 << 16, 1 << 20] {
            let mappings = [(); 5].map(|()| map_aligned(size));
            for start in mappings {
                assert!(!start.is_null() && (start as usize).is_multiple_of(size));
                // SAFETY: the mapping has so many bytes.
                unsafe { start.write_bytes(7, size) };
            }
            for start in mappings {
                // SAFETY: as above, and it is not used after that.
                unsafe {
                    assert!(
                        std::slice::from_raw_parts(start, size)
                            .iter()
                            .all(|&byte| byte == 7)
                    );
                    unmap(start, size);
                }
            }
        }
    }

    #[test]
    fn a_page_is_a_power_of_two() {
        assert!(page_size().is_power_of_two() && page_size() >= SMALLEST_PAGE);
        assert_eq!(page_size(), ask_page_size());
    }
}
