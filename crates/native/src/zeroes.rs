//! Zeroes for a block of `calloc` that begins at the start of an OS page.
//!
//! The C library's `calloc` leaves new memory alone, which the kernel has filled with zeroes, and fills memory that it uses
//! again. A block of `memalign` does not say which of them it is, so the kernel is asked page by page: pages that are in
//! memory are filled, and the others stay untouched, so that memory is used only when the program touches it.

use std::ffi::c_void;

use crate::calls::PAGE;

/// Below this size in bytes, a block is filled without asking. (glibc maps new memory from here on.)
const LARGE: usize = 128 << 10;
/// Pages that one call asks about: a megabyte.
const ASKED: usize = 256;

/// Fills a block with zeroes.
///
/// # Safety
/// The block is in use, has `size` bytes, and begins at the start of an OS page.
pub unsafe fn fill(block: *mut c_void, size: usize) {
    let bytes = block.cast::<u8>();
    // SAFETY: by the contract; the whole pages lie inside of the block.
    unsafe {
        let mut done = 0;
        if size >= LARGE && is_private(block) {
            let pages = size & !(PAGE - 1);
            while done < pages {
                let part = (pages - done).min(ASKED * PAGE);
                fill_pages(bytes.add(done), part);
                done += part;
            }
        }
        bytes.add(done).write_bytes(0, size - done);
    }
}

/// Whether pages of this memory are zero once they are given back to the kernel: private anonymous memory. Other memory
/// refuses that, or keeps its contents (shared memory). Gives back the first page.
unsafe fn is_private(block: *mut c_void) -> bool {
    let word = block.cast::<u64>();
    // SAFETY: the first page belongs to the block.
    unsafe {
        word.write_volatile(1);
        libc::madvise(block, PAGE, libc::MADV_DONTNEED) == 0 && word.read_volatile() == 0
    }
}

/// Fills at most `ASKED` whole pages of private memory: those in memory, with zeroes. The others are given back to the
/// kernel, for they may be swapped out.
unsafe fn fill_pages(first: *mut u8, size: usize) {
    let mut in_memory = [1; ASKED];
    // SAFETY: the pages belong to the block, and the array has a byte for each of them.
    let asked = unsafe { libc::mincore(first.cast(), size, in_memory.as_mut_ptr()) } == 0;
    let pages = &in_memory[..size / PAGE];
    let mut at = 0;
    for run in pages.chunk_by(|one, next| one & 1 == next & 1) {
        // SAFETY: the run lies inside of the block.
        unsafe {
            let (start, length) = (first.add(at * PAGE), run.len() * PAGE);
            let fills = !asked || run[0] & 1 == 1;
            if fills || libc::madvise(start.cast(), length, libc::MADV_DONTNEED) != 0 {
                start.write_bytes(0, length);
            }
        }
        at += run.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A private mapping of some pages, all untouched.
    fn mapped(pages: usize) -> *mut u8 {
        // SAFETY: a new anonymous mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // A huge page would bring the neighbours of a touched page into memory.
        // SAFETY: the mapping of above.
        unsafe { libc::madvise(start, pages * PAGE, libc::MADV_NOHUGEPAGE) };
        start.cast()
    }

    fn in_memory(start: *mut u8, pages: usize) -> Vec<bool> {
        let mut found = vec![0; pages];
        // SAFETY: the mapping has so many pages.
        let status = unsafe { libc::mincore(start.cast(), pages * PAGE, found.as_mut_ptr()) };
        assert_eq!(status, 0);
        found.iter().map(|page| page & 1 == 1).collect()
    }

    #[test]
    fn used_pages_are_filled_and_new_ones_stay_untouched() {
        const PAGES: usize = 3 * ASKED + 7;
        let start = mapped(PAGES);
        let used = |page: usize| page % 5 == 3 || (ASKED - 2..ASKED + 3).contains(&page);
        for page in (0..PAGES).filter(|page| used(*page)) {
            // SAFETY: a page of the mapping.
            unsafe { start.add(page * PAGE).write_bytes(0xa5, PAGE) };
        }
        let size = (PAGES - 1) * PAGE + 100;
        // SAFETY: the mapping has more bytes.
        unsafe { fill(start.cast(), size) };
        let after = in_memory(start, PAGES);
        // The first page tells what memory this is, and the last one is filled without asking.
        let expected: Vec<bool> = (0..PAGES).map(used).collect();
        assert_eq!(after[1..PAGES - 1], expected[1..PAGES - 1]);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(start, size) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn shared_memory_is_filled() {
        let pages = 2 * ASKED;
        // SAFETY: a new mapping, shared: its pages keep their contents when they are given back.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<u8>()
        };
        // SAFETY: the mapping of above.
        unsafe {
            start.write_bytes(0xa5, pages * PAGE);
            fill(start.cast(), pages * PAGE);
            assert!((0..pages * PAGE).all(|at| *start.add(at) == 0));
        }
    }
}
