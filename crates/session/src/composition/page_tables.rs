//! Resident pages from the kernel's page tables: the request `PAGEMAP_SCAN` of `/proc/self/pagemap`, in Linux since 6.7.
//!
//! `/proc/self/smaps` says the same, but the kernel then reads its record of each resident page, and most of these are
//! in no cache: 4 ms for 100 MB. This request reads the page tables only: 0.7 ms. For pages of files it
//! reads the record too, if it is asked to, to tell a file's page from a private copy of it.
//!
//! One request looks at many mappings: a process has hundreds, and most of them have few pages.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use nthbyte_host::memory::page_size;

/// `_IOWR('f', 16, struct pm_scan_arg)` (linux/fs.h).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

// The categories of a page.
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// Bytes that one request looks at: the kernel holds the lock of the address space meanwhile.
const AT_ONCE: usize = 1 << 30;
/// Neighbouring pages of the same categories make one region, even across mappings; a request returns at most this many.
const REGIONS: usize = 256;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Set by the kernel: where it stopped, because there were too many regions.
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// What the page tables have for a range of addresses. The kernel leaves out memory of devices, and its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Bytes of resident pages. Those that are zero because nothing was written to them do not count.
    pub(super) resident: u64,
    /// The part of it that is a file's or shared, and no private copy. 0 unless it was asked for.
    pub(super) of_files: u64,
    /// Bytes of pages that have no memory, but more than nothing: most of these are swapped out.
    pub(super) swapped: u64,
    /// Whether there is a huge page.
    pub(super) is_huge: bool,
}

/// Why the resident set of this process is not read from its page tables, and how else, in one line. `None` if it is.
#[must_use]
pub fn problem() -> Option<String> {
    let of_this_function = (problem as *const () as usize) & !(page_size() - 1);
    let why = match File::open("/proc/self/pagemap") {
        Err(error) => format!("/proc/self/pagemap cannot be read ({})", error.kind()),
        Ok(file) => {
            let tables = PageTables { file };
            let page = of_this_function..of_this_function + page_size();
            if tables.reader(page.end, true).pages(&page).is_some() {
                return None;
            }
            "the kernel does not answer PAGEMAP_SCAN, which Linux 6.7 and later have".to_owned()
        }
    };
    let instead = match File::open("/proc/self/smaps") {
        Ok(_) => "what RSS is made of is read from /proc/self/smaps, and so more rarely",
        Err(_) => "and /proc/self/smaps cannot be read either: what RSS is made of is not known",
    };
    Some(format!("{why}; {instead}"))
}

/// The page tables of this process.
pub(super) struct PageTables {
    file: File,
}

impl PageTables {
    /// `None` if they cannot be read.
    pub(super) fn open() -> Option<Self> {
        let file = File::open("/proc/self/pagemap").ok()?;
        Some(Self { file })
    }

    /// Reads the pages of ranges below `end`. With `with_files` it also tells pages of files from others.
    pub(super) fn reader(&self, end: usize, with_files: bool) -> TableReader<'_> {
        TableReader {
            file: &self.file,
            with_files,
            found: [Region::default(); REGIONS],
            left: 0..0,
            next: 0,
            end,
        }
    }
}

/// Reads the pages of one range after the other, in the order of their addresses.
pub(super) struct TableReader<'a> {
    file: &'a File,
    with_files: bool,
    /// The regions that the last request returned.
    found: [Region; REGIONS],
    /// The ones of `found` that are left.
    left: Range<usize>,
    /// The address of the next request.
    next: usize,
    end: usize,
}

impl TableReader<'_> {
    /// The pages of a range, which lies behind the ranges of earlier calls. `None` if the kernel refuses.
    pub(super) fn pages(&mut self, range: &Range<usize>) -> Option<Pages> {
        let mut pages = Pages::default();
        while let Some(region) = self.overlapping(range)? {
            pages.add(&region);
            if region.end == range.end as u64 {
                break;
            }
            self.pop();
        }
        Some(pages)
    }

    /// The part of the first region that is left in a range. The region stays. The inner `None` if there is none, the outer
    /// one if the kernel refuses.
    fn overlapping(&mut self, range: &Range<usize>) -> Option<Option<Region>> {
        loop {
            while let Some(region) = self.found[self.left.clone()].first() {
                let part = Region {
                    start: region.start.max(range.start as u64),
                    end: region.end.min(range.end as u64),
                    ..*region
                };
                if part.start < part.end {
                    return Some(Some(part));
                }
                if region.start >= range.end as u64 {
                    return Some(None);
                }
                self.pop();
            }
            // What lies before the range is of no interest, and may be terabytes of nothing.
            self.next = self.next.max(range.start);
            if self.next >= range.end {
                return Some(None);
            }
            self.request()?;
        }
    }

    /// Removes the first region.
    fn pop(&mut self) {
        self.left.start += 1;
    }

    /// Asks for the next regions.
    fn request(&mut self) -> Option<()> {
        let wanted = IS_PRESENT | IS_SWAPPED;
        let files = if self.with_files { IS_FILE } else { 0 };
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: self.next as u64,
            end: self.end.min(self.next.saturating_add(AT_ONCE)) as u64,
            regions: self.found.as_mut_ptr().expose_provenance() as u64,
            regions_len: REGIONS as u64,
            category_anyof_mask: wanted,
            return_mask: wanted | IS_ZERO | IS_HUGE | files,
            ..Scan::default()
        };
        // SAFETY: both structs have the kernel's layout, and `found` has room for as many regions as are asked for. No
        // memory of the range is read, and no page is changed, because there are no flags.
        let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let count = usize::try_from(count).ok().filter(|&of| of <= REGIONS)?;
        let stopped = usize::try_from(scan.walk_end).ok()?;
        if stopped <= self.next {
            return None;
        }
        (self.left, self.next) = (0..count, stopped);
        Some(())
    }
}

impl Pages {
    fn add(&mut self, region: &Region) {
        let is = |category: u64| region.categories & category != 0;
        let size = region.end.saturating_sub(region.start);
        if is(IS_PRESENT) && !is(IS_ZERO) {
            self.resident += size;
            if is(IS_FILE) {
                self.of_files += size;
            }
        }
        if is(IS_SWAPPED) {
            self.swapped += size;
        }
        self.is_huge |= is(IS_HUGE);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use nthbyte_host::memory::SMALLEST_PAGE as PAGE;

    /// New memory of this many pages; its first byte.
    pub(crate) fn map(pages: usize, flags: libc::c_int) -> *mut u8 {
        // SAFETY: asks for new memory.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the range is the mapping. Without huge pages, touched memory is known to the page.
        unsafe { libc::madvise(memory, pages * PAGE, libc::MADV_NOHUGEPAGE) };
        memory.cast()
    }

    /// The pages of one range. A page that the kernel moves at this moment counts as swapped: they are read again.
    fn pages_of(tables: &PageTables, range: Range<usize>, with_files: bool) -> Option<Pages> {
        let read = || tables.reader(range.end, with_files).pages(&range);
        let mut tries = std::iter::repeat_with(read).take(1000);
        tries.find(|pages| pages.as_ref().is_none_or(|pages| pages.swapped == 0))?
    }

    #[test]
    fn each_touched_page_is_counted_once() {
        // More regions than one request returns.
        const PAGES: usize = 4 * REGIONS + 2;
        let Some(tables) = PageTables::open() else {
            return;
        };
        for (flags, of_files) in [(libc::MAP_PRIVATE, 0), (libc::MAP_SHARED, 1)] {
            let memory = map(PAGES, flags);
            let range = memory as usize..memory as usize + PAGES * PAGE;
            let Some(before) = pages_of(&tables, range.clone(), true) else {
                // The kernel is older.
                return;
            };
            assert_eq!(before, Pages::default());
            for page in (0..PAGES).step_by(2) {
                // SAFETY: the page is in the mapping.
                unsafe { memory.add(page * PAGE).write(1) };
            }
            // Reading brings the page of zeroes, or a page of shared memory.
            // SAFETY: as above.
            let zero = unsafe { memory.add(PAGE).read_volatile() };
            let touched = (PAGES / 2) as u64 + of_files;
            let pages = pages_of(&tables, range.clone(), true).unwrap();
            assert_eq!(u64::from(zero) + pages.resident, touched * PAGE as u64);
            assert_eq!(pages.of_files, of_files * touched * PAGE as u64);
            assert!(pages.swapped == 0 && !pages.is_huge);
            let pages = pages_of(&tables, range.clone(), false).unwrap();
            assert_eq!((pages.resident / PAGE as u64, pages.of_files), (touched, 0));
            // SAFETY: the mapping is this test's, and unused.
            unsafe { libc::munmap(memory.cast(), PAGES * PAGE) };
        }
    }

    /// One region may lie in several ranges, a range may have several regions, and nothing between ranges counts.
    #[test]
    fn each_range_has_its_own_pages() {
        const PAGES: usize = 40;
        let Some(tables) = PageTables::open() else {
            return;
        };
        let memory = map(PAGES, libc::MAP_PRIVATE);
        for page in (0..PAGES).filter(|page| !matches!(page, 5 | 6 | 17)) {
            // SAFETY: the page is in the mapping.
            unsafe { memory.add(page * PAGE).write(1) };
        }
        let start = memory as usize;
        let of = |pages: Range<usize>| start + pages.start * PAGE..start + pages.end * PAGE;
        let ranges = [0..1, 1..2, 2..8, 10..16, 16..17, 17..18, 18..40].map(of);
        let mut reader = tables.reader(start + PAGES * PAGE, false);
        let found = ranges.map(|range| reader.pages(&range).map(|of| of.resident / PAGE as u64));
        // `None` from an older kernel.
        if found[0].is_some() {
            assert_eq!(found, [1, 1, 4, 6, 1, 0, 22].map(Some));
        }
        // SAFETY: the mapping is this test's, and unused.
        unsafe { libc::munmap(memory.cast(), PAGES * PAGE) };
    }

    #[test]
    fn addresses_of_the_kernel_are_refused() {
        if let Some(tables) = PageTables::open() {
            let last = usize::MAX - 2 * PAGE + 1..usize::MAX - PAGE + 1;
            assert_eq!(pages_of(&tables, last, false), None);
        }
    }
}
