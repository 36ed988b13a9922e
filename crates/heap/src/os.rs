//! All calls to the operating system. None of them changes `errno`: a program may read it after a successful allocation
//! or a free, and expects the value of an earlier call.

use crate::geometry::{ARENA_SIZE, SMALLEST_OS_PAGE};
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};

pub use nthbyte_host::keep_errno;
pub use nthbyte_host::memory::page_size;

/// Maps `size` bytes of zeroes, or returns `None` when there is no memory.
///
/// Address space is counted at once (`RLIMIT_AS`), memory only when it is touched.
pub fn map(size: usize) -> Option<NonNull<u8>> {
    map_with(null_mut(), size, libc::MAP_NORESERVE)
}

/// Maps `size` bytes of zeroes that can only be read. They take no memory, also in a process that locks its memory
/// (`mlockall`): all pages are the kernel's page of zeroes.
pub fn map_readable(size: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ;
    map_protected(null_mut(), size, protection, libc::MAP_NORESERVE)
}

/// Makes the OS pages of a range writable. Returns false if the kernel has no memory to note it, or they are not mapped.
///
/// # Safety
/// Mappings in these pages were made here.
pub unsafe fn make_writable(address: *mut u8, size: usize) -> bool {
    let skip = address.addr() % page_size();
    let first = address.wrapping_sub(skip);
    let size = (skip + size).next_multiple_of(page_size());
    // SAFETY: by the caller.
    keep_errno(|| unsafe {
        libc::mprotect(first.cast(), size, libc::PROT_READ | libc::PROT_WRITE) == 0
    })
}

/// Maps `size` bytes of zeroes at a multiple of `size`, which is a power of two. `hint` is a
/// preferred address, or null.
pub fn map_aligned(size: usize, hint: *mut u8) -> Option<NonNull<u8>> {
    if let Some(found) = map_with(hint, size, 0) {
        if found.addr().get().is_multiple_of(size) {
            return Some(found);
        }
        // SAFETY: just mapped; nothing refers to it.
        unsafe { unmap(found.as_ptr(), size) };
    }
    let wide = map_with(null_mut(), size.checked_mul(2)?, 0)?.as_ptr();
    // SAFETY: just mapped; nothing refers to it.
    NonNull::new(unsafe { keep_aligned(wide, size) })
}

/// Unmaps all of `wide`, which has twice `size` bytes, but `size` bytes at a multiple of `size`. Returns their address.
///
/// # Safety
/// The range was mapped here, and nothing refers to it.
unsafe fn keep_aligned(wide: *mut u8, size: usize) -> *mut u8 {
    let before = wide.align_offset(size);
    // SAFETY: by the caller. The bytes before and after are whole OS pages; the kernel refuses to unmap none.
    unsafe {
        unmap(wide, before);
        unmap(wide.add(before + size), size - before);
        wide.add(before)
    }
}

/// Maps `size` bytes from the pool of reserved huge pages, or returns `None` if it is empty.
/// Huge mappings are aligned to their page size.
pub fn map_hugetlb(size: usize) -> Option<NonNull<u8>> {
    const TWO_MIB: c_int = 21 << libc::MAP_HUGE_SHIFT;
    map_with(null_mut(), size, libc::MAP_HUGETLB | TWO_MIB)
}

/// Maps `size` bytes of zeroes at an address that is free, or returns `None`.
pub fn map_at(address: usize, size: usize) -> Option<NonNull<u8>> {
    let wanted = core::ptr::with_exposed_provenance_mut(address);
    let flags = libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let found = map_with(wanted, size, flags)?;
    if found.as_ptr() == wanted {
        return Some(found);
    }
    // Linux before 4.17 takes the address as a wish.
    // SAFETY: just mapped; nothing refers to it.
    unsafe { unmap(found.as_ptr(), size) };
    None
}

/// The limit of the process's addresses in bytes (`ulimit -v`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLimit {
    /// What holds now. The process may raise it up to `hard`.
    pub soft: u64,
    /// `u64::MAX` if there is none. Only a privileged process may raise it.
    pub hard: u64,
}

/// The limit of the process's addresses. `None` if it may have as many as it likes, or if that is not known.
pub fn address_limit() -> Option<AddressLimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a local variable.
    let failed = keep_errno(|| unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) });
    (failed == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(AddressLimit {
        soft: limit.rlim_cur,
        hard: limit.rlim_max,
    })
}

/// Calls `visit` with the start and the end of each mapping of the process. Returns false if they are not known.
pub fn for_each_mapping(mut visit: impl FnMut(usize, usize)) -> bool {
    // SAFETY: the text ends with a zero.
    let file = keep_errno(|| unsafe {
        libc::open(
            c"/proc/self/maps".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    });
    if file < 0 {
        return false;
    }
    // Each line begins with two hexadecimal numbers: `start-end `.
    let (mut numbers, mut at) = ([0usize; 2], 0);
    let mut buffer = [0u8; 4096];
    let got = loop {
        // SAFETY: the pointer and the length are the buffer's.
        let got =
            keep_errno(|| unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) });
        for &byte in &buffer[..usize::try_from(got).unwrap_or(0)] {
            match (byte, at) {
                (b'\n', _) => (numbers, at) = ([0; 2], 0),
                (b'-', 0) => at = 1,
                (b' ', 1) => {
                    visit(numbers[0], numbers[1]);
                    at = 2;
                }
                (_, 0 | 1) => {
                    let digit = (byte as char).to_digit(16).unwrap_or(0);
                    numbers[at] = numbers[at] << 4 | digit as usize;
                }
                _ => {}
            }
        }
        if got <= 0 {
            break got;
        }
    };
    // SAFETY: opened above.
    keep_errno(|| unsafe { libc::close(file) });
    got == 0
}

fn map_with(hint: *mut u8, size: usize, flags: c_int) -> Option<NonNull<u8>> {
    map_protected(hint, size, libc::PROT_READ | libc::PROT_WRITE, flags)
}

fn map_protected(
    hint: *mut u8,
    size: usize,
    protection: c_int,
    flags: c_int,
) -> Option<NonNull<u8>> {
    // SAFETY: an anonymous mapping without MAP_FIXED touches no existing memory.
    let address = keep_errno(|| unsafe {
        libc::mmap(
            hint.cast::<c_void>(),
            size,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    });
    if address == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(address.cast())
    }
}

/// Removes a mapping.
///
/// # Safety
/// The range was mapped here, and nothing uses it any more.
pub unsafe fn unmap(address: *mut u8, size: usize) {
    // SAFETY: by the caller. It fails only when the kernel has no memory to split a mapping; then the range stays
    // mapped, which is harmless.
    keep_errno(|| unsafe { libc::munmap(address.cast(), size) });
}

/// Purges the memory of the whole OS pages of a range; the range stays mapped. An OS page that is only partly in the
/// range keeps its memory: some kernels for AArch64 have OS pages of 64 KiB.
///
/// # Safety
/// The range was mapped here, and its contents are not needed.
pub unsafe fn purge(address: *mut u8, size: usize) {
    let (skip, whole) = whole_pages(address.addr(), size, page_size());
    if whole > 0 {
        // SAFETY: by the caller; the kernel would round `whole` up, but it is a multiple of a page.
        unsafe { advise(address.add(skip), whole, libc::MADV_DONTNEED) };
    }
}

/// The offset of the first whole OS page from the start of a range, and the size of all whole OS
/// pages in bytes.
const fn whole_pages(start: usize, size: usize, page: usize) -> (usize, usize) {
    let skip = start.next_multiple_of(page) - start;
    (skip, size.saturating_sub(skip) / page * page)
}

/// Gives the kernel advice for a range. Returns whether the kernel accepted it.
///
/// # Safety
/// The range begins with an OS page and is mapped. Its contents are not needed if the advice is to drop them.
unsafe fn advise(address: *mut u8, size: usize, advice: c_int) -> bool {
    // SAFETY: by the caller.
    keep_errno(|| unsafe { libc::madvise(address.cast(), size, advice) == 0 })
}

/// Requests transparent huge pages in a range, or requests that there are none.
///
/// # Safety
/// The range begins with an OS page, and is mapped.
pub unsafe fn advise_huge(address: *mut u8, size: usize, wanted: bool) {
    let advice = if wanted {
        libc::MADV_HUGEPAGE
    } else {
        libc::MADV_NOHUGEPAGE
    };
    // SAFETY: by the caller; contents do not change. A kernel without huge pages refuses, which is harmless.
    unsafe { advise(address, size, advice) };
}

/// Requests transparent huge pages in a range that other code mapped, and in the rest of the OS pages at its ends.
///
/// # Safety
/// The range is mapped.
pub unsafe fn advise_huge_around(address: *mut u8, size: usize) {
    let before = address.addr() % page_size();
    // SAFETY: by the caller.
    unsafe { advise_huge(address.wrapping_sub(before), before + size, true) };
}

/// Allocates the memory behind a range now (`MADV_POPULATE_WRITE`, Linux 5.14). On older kernels each page is
/// allocated at its first touch.
///
/// # Safety
/// The range was mapped here.
pub unsafe fn populate(address: *mut u8, size: usize) {
    // SAFETY: by the caller; contents do not change.
    unsafe { advise(address, size, libc::MADV_POPULATE_WRITE) };
}

/// The number of bytes of an arena that have memory behind them; 0 if unknown.
///
/// # Safety
/// The range was mapped here.
pub unsafe fn resident(arena: *mut u8) -> usize {
    let mut pages = [0u8; ARENA_SIZE / SMALLEST_OS_PAGE];
    let page = page_size();
    if page < SMALLEST_OS_PAGE {
        return 0;
    }
    // SAFETY: by the caller; there is a byte for each page.
    let failed =
        keep_errno(|| unsafe { libc::mincore(arena.cast(), ARENA_SIZE, pages.as_mut_ptr()) });
    let present = pages.iter().filter(|&&page| page & 1 != 0).count();
    if failed == 0 { present * page } else { 0 }
}

/// The CPU time of the calling thread, in nanoseconds; 0 if unknown.
pub fn thread_nanos() -> u64 {
    nanos(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time of the process, in nanoseconds; 0 if unknown.
pub fn process_nanos() -> u64 {
    nanos(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local variable.
    keep_errno(|| unsafe { libc::clock_gettime(clock, &raw mut time) });
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Copies a range of the size of a huge page into one huge page, now (`MADV_COLLAPSE`, Linux 6.1). Returns
/// whether that was done; the contents do not change in either case.
///
/// # Safety
/// The range was mapped here.
pub unsafe fn collapse(address: *mut u8, size: usize) -> bool {
    // SAFETY: by the caller.
    unsafe {
        advise_huge(address, size, true);
        advise(address, size, libc::MADV_COLLAPSE)
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// For tests that map memory where the kernel would not. A table in parts has none for memory that is mapped there
    /// later.
    pub fn one_at_a_time() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of a range that are mapped.
    pub fn mapped(range: core::ops::Range<usize>) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        assert!(for_each_mapping(|start, end| {
            let part = (start.max(range.start), end.min(range.end));
            if part.0 < part.1 {
                found.push(part);
            }
        }));
        found
    }

    #[test]
    fn of_a_range_only_the_aligned_part_stays_mapped() {
        let _lock = one_at_a_time();
        // Far from where the kernel maps for others.
        let place = 1 << 40;
        for (before, kept) in [(0, ARENA_SIZE), (3 * page_size(), 2 * ARENA_SIZE)] {
            let wide = place + ARENA_SIZE + before;
            let range = map_at(wide, 2 * ARENA_SIZE).expect("nobody maps there");
            assert_eq!(range.addr().get(), wide);
            // SAFETY: just mapped.
            let part = unsafe { keep_aligned(range.as_ptr(), ARENA_SIZE) };
            assert_eq!(part.addr(), place + kept);
            let all = mapped(place..place + 8 * ARENA_SIZE);
            assert_eq!(all, [(part.addr(), part.addr() + ARENA_SIZE)]);
            // SAFETY: it is this test's own.
            unsafe { unmap(part, ARENA_SIZE) };
            assert_eq!(mapped(place..place + 8 * ARENA_SIZE), []);
        }
    }

    #[test]
    fn a_mapping_is_aligned_wherever_the_kernel_puts_it() {
        let _lock = one_at_a_time();
        let hints = [0, 1, ARENA_SIZE - page_size()].map(|offset| (1 << 41) + offset);
        for hint in hints {
            let arena = map_aligned(ARENA_SIZE, core::ptr::without_provenance_mut(hint));
            assert!(
                arena
                    .expect("memory")
                    .addr()
                    .get()
                    .is_multiple_of(ARENA_SIZE)
            );
        }
    }

    #[test]
    fn memory_that_was_touched_is_resident() {
        let arena = map_aligned(ARENA_SIZE, null_mut())
            .expect("memory")
            .as_ptr();
        let page = page_size();
        // SAFETY: just mapped.
        unsafe {
            advise_huge(arena, ARENA_SIZE, false);
            assert_eq!(resident(arena), 0);
            for at in [0, 5, 7] {
                arena.add(at * page).write(1);
            }
            assert_eq!(resident(arena), 3 * page);
            purge(arena.add(page), 5 * page);
            assert_eq!(resident(arena), 2 * page);
            if advise(arena.add(8 * page), page, libc::MADV_POPULATE_WRITE) {
                populate(arena.add(8 * page), 4 * page);
                assert_eq!(resident(arena), 6 * page);
            }
        }
    }

    #[test]
    fn clocks_count_nanoseconds() {
        let exact = |clock| {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the pointer is to a local variable.
            assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
            (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
        };
        for (clock, nanos) in [
            (libc::CLOCK_THREAD_CPUTIME_ID, thread_nanos as fn() -> u64),
            (libc::CLOCK_PROCESS_CPUTIME_ID, process_nanos),
            // More than a second.
            (libc::CLOCK_MONOTONIC, || nanos(libc::CLOCK_MONOTONIC)),
        ] {
            let before = exact(clock);
            let now = nanos();
            assert!(before <= now && now <= exact(clock));
        }
    }

    #[test]
    fn only_whole_pages_are_purged() {
        const KIB: usize = 1 << 10;
        for (start, size, page, expected) in [
            (384, 16 * KIB - 384, 4 * KIB, (4 * KIB - 384, 12 * KIB)),
            (384, 16 * KIB - 384, 16 * KIB, (16 * KIB - 384, 0)),
            (16 * KIB, 32 * KIB, 16 * KIB, (0, 32 * KIB)),
            (0, 48 * KIB, 64 * KIB, (0, 0)),
            (48 * KIB, 96 * KIB, 64 * KIB, (16 * KIB, 64 * KIB)),
        ] {
            assert_eq!(whole_pages(start, size, page), expected, "{page}");
        }
    }
}
