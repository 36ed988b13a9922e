//! Releases the memory of the host's code and constants that its start-up used.
//!
//! An interpreter touches four megabytes of its own code and constants before the program begins, and needs half of
//! them. The pages belong to files. So they can be released at any time, and the kernel maps them again when they are
//! touched, sixteen at a time.
//!
//! Only pages that still are the file's are released, and only of segments that nothing may write to. A page that was
//! written to (a debugger's breakpoint, a probe, relocated text) has a copy in memory and stays. `/proc/self/pagemap`
//! tells them apart; without it nothing is released. Memory that the program has locked stays too.
//!
//! As for any page that the kernel drops when memory is short, the file must still be readable. A file that was
//! replaced or removed is: the mapping keeps it.
//!
//! All this is only for a process with one thread. Another one might unload an image and map other memory at its place,
//! between the look at a page and its release.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::segments::{self, Segment};
use crate::memory::{SMALLEST_PAGE, page_size};

/// Segments of more images than this are not looked at.
const MOST: usize = 1024;
/// Number of pages whose entries are read at a time.
const ENTRIES: usize = 512;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page belongs to a file, or is shared.
const OF_FILE: u64 = 1 << 61;

/// The segments of all images except this library that nothing may write to.
#[derive(Debug)]
pub struct HostImages(Vec<Range<usize>>);

impl HostImages {
    /// Finds them. `None` if the process has several threads, if pages are not 4 KiB, or if there is no memory for the list.
    #[must_use]
    pub fn find() -> Option<Self> {
        if page_size() == SMALLEST_PAGE && is_only_thread() {
            Self::find_anyway()
        } else {
            None
        }
    }

    fn find_anyway() -> Option<Self> {
        let mut found = Vec::new();
        found.try_reserve_exact(MOST).ok()?;
        segments::for_each(&mut |segment: Segment| {
            if !segment.is_writable && !segment.is_ours && found.len() < MOST {
                found.push(segment.pages);
            }
        });
        Some(Self(found))
    }

    /// Releases their unchanged pages. Opens a file for a moment. Since [`Self::find`], only code that unloads no image has
    /// run.
    pub fn release(&self) {
        if let Ok(entries) = File::open("/proc/self/pagemap") {
            for pages in &self.0 {
                release_unchanged(&entries, pages.clone());
            }
        }
    }
}

/// Whether the process has one thread. The folder of the threads has a link for each of them (`proc_task_getattr` of the
/// kernel's `fs/proc/base.c`), and two of its own.
fn is_only_thread() -> bool {
    std::fs::metadata("/proc/self/task").is_ok_and(|folder| folder.nlink() == 3)
}

/// Releases the runs of unchanged pages in a range.
fn release_unchanged(entries: &File, pages: Range<usize>) {
    let mut buffer = [0u8; ENTRIES * 8];
    for start in pages.clone().step_by(ENTRIES * SMALLEST_PAGE) {
        let count = ((pages.end - start) / SMALLEST_PAGE).min(ENTRIES);
        let bytes = &mut buffer[..count * 8];
        if entries
            .read_exact_at(bytes, (start / SMALLEST_PAGE * 8) as u64)
            .is_err()
        {
            return;
        }
        let (bytes, _) = bytes.as_chunks::<8>();
        let mut at = 0;
        for run in bytes.chunk_by(|&a, &b| is_unchanged(a) == is_unchanged(b)) {
            if is_unchanged(run[0]) {
                let address = start + at * SMALLEST_PAGE;
                // SAFETY: each page is the file's, or is not in memory. The content does not change: the kernel reads
                // it from the file again.
                unsafe {
                    libc::madvise(
                        address as *mut c_void,
                        run.len() * SMALLEST_PAGE,
                        libc::MADV_DONTNEED,
                    )
                };
            }
            at += run.len();
        }
    }
}

/// Whether the page of an entry is the file's, or is not in memory.
fn is_unchanged(entry: [u8; 8]) -> bool {
    let entry = u64::from_ne_bytes(entry);
    entry & SWAPPED == 0 && (entry & PRESENT == 0 || entry & OF_FILE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn is_present(entries: &File, address: usize) -> bool {
        let mut entry = [0; 8];
        entries
            .read_exact_at(&mut entry, (address / SMALLEST_PAGE * 8) as u64)
            .unwrap();
        u64::from_ne_bytes(entry) & PRESENT != 0
    }

    /// Pages of a private mapping that were written to keep their content; the others are released.
    #[test]
    fn changed_pages_stay() {
        const PAGES: usize = 1200;
        let path = std::env::temp_dir().join(format!("nthbyte-pages-{}", std::process::id()));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![7; PAGES * SMALLEST_PAGE]).unwrap();
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * SMALLEST_PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        } as usize;
        let byte = |page: usize| (start + page * SMALLEST_PAGE) as *mut u8;
        let changed = [0, 3, 511, 512, 700, PAGES - 1];
        // SAFETY: within the mapping.
        unsafe {
            (0..PAGES).for_each(|page| assert_eq!(byte(page).read_volatile(), 7));
            changed
                .iter()
                .for_each(|&page| byte(page).write_volatile(9));
            // A write may have split a huge page, which unmaps the rest of it.
            for page in 0..PAGES {
                let _ = byte(page).read_volatile();
            }
        }
        let entries = File::open("/proc/self/pagemap").unwrap();
        release_unchanged(&entries, start..start + PAGES * SMALLEST_PAGE);
        for page in 0..PAGES {
            assert_eq!(
                is_present(&entries, start + page * SMALLEST_PAGE),
                changed.contains(&page),
                "{page}"
            );
        }
        // SAFETY: within the mapping, which nothing uses afterwards.
        unsafe {
            for page in 0..PAGES {
                let expected = if changed.contains(&page) { 9 } else { 7 };
                assert_eq!(byte(page).read_volatile(), expected, "{page}");
            }
            libc::munmap(start as *mut c_void, PAGES * SMALLEST_PAGE);
        }
    }

    #[test]
    fn the_program_goes_on() {
        let before: Vec<String> = std::env::args().collect();
        let images = HostImages::find_anyway().unwrap();
        for _ in 0..20 {
            images.release();
        }
        assert_eq!(std::env::args().collect::<Vec<_>>(), before);
        assert_eq!(format!("{:.3} {}", 2f64.sqrt(), 1 << 20), "1.414 1048576");
    }

    /// Another thread may unload an image at any time.
    #[test]
    fn nothing_is_found_beside_another_thread() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        assert!(!is_only_thread());
        assert!(HostImages::find().is_none());
        drop(end);
        thread.join().unwrap().unwrap_err();
    }
}
