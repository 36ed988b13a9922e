//! How much of a range of addresses is in memory.

use std::ops::Range;

use nthbyte_host::memory::page_size;

use super::page_tables::{PageTables, Pages};

/// Bytes that one call of `mincore` is asked for. The answer has a byte for each page.
const AT_ONCE: usize = 16 << 20;

/// The resident bytes of a range, by `mincore`: without a file, in any thread. Pages that were read and never written to
/// count, and those that are swapped out may not.
pub(crate) fn resident(range: Range<usize>) -> u64 {
    let mut pages = Vec::new();
    if pages.try_reserve_exact(AT_ONCE / page_size()).is_err() {
        return 0;
    }
    let start = range.start & !(page_size() - 1);
    let pieces = (start..range.end).step_by(AT_ONCE);
    pieces
        .map(|piece| of_piece(piece..range.end.min(piece + AT_ONCE), &mut pages))
        .sum()
}

/// Unmapped memory has none: since the range was known, another thread may have freed it; and a mapping from before the
/// session had memory of the agent in it, where the kernel joined them. `mincore` fails for a range with such a hole, so
/// its halves are asked.
fn of_piece(range: Range<usize>, pages: &mut Vec<u8>) -> u64 {
    pages.clear();
    pages.resize(range.len().div_ceil(page_size()), 0);
    // SAFETY: there is a byte for each page. The call reads no memory of the range, which may be unmapped.
    let failed = unsafe {
        libc::mincore(
            std::ptr::with_exposed_provenance_mut(range.start),
            range.len(),
            pages.as_mut_ptr(),
        )
    };
    if failed != 0 {
        let has_hole = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
        if !has_hole || pages.len() < 2 {
            return 0;
        }
        let middle = range.start + pages.len() / 2 * page_size();
        return of_piece(range.start..middle, pages) + of_piece(middle..range.end, pages);
    }
    let present = pages.iter().filter(|&&page| page & 1 != 0).count();
    (present * page_size()) as u64
}

/// Reads one range after the other, in the order of their addresses: by the page tables, where the kernel shows them. Pages
/// that are swapped out count as resident here: they hold what was written to them.
pub(crate) struct ResidentPages {
    tables: Option<PageTables>,
}

impl ResidentPages {
    pub(crate) fn open() -> Self {
        Self {
            tables: PageTables::open(),
        }
    }

    /// The resident bytes of each range.
    pub(crate) fn each(&self, ranges: &[Range<usize>], mut found: impl FnMut(usize, u64)) {
        let end = ranges.last().map_or(0, |range| range.end);
        let mut reader = self.tables.as_ref().map(|tables| tables.reader(end, false));
        for (at, range) in ranges.iter().enumerate() {
            let pages = reader.as_mut().and_then(|reader| reader.pages(range));
            let bytes = pages.map(
                |Pages {
                     resident, swapped, ..
                 }| resident + swapped,
            );
            if bytes.is_none() {
                reader = None;
            }
            found(at, bytes.unwrap_or_else(|| resident(range.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composition::page_tables::tests::map;
    use nthbyte_host::memory::SMALLEST_PAGE as PAGE;

    #[test]
    fn what_is_unmapped_leaves_the_rest() {
        const PAGES: usize = 23;
        let memory = map(PAGES, libc::MAP_PRIVATE | libc::MAP_POPULATE);
        let start = memory.addr();
        let found =
            |pages: Range<usize>| resident(start + pages.start * PAGE..start + pages.end * PAGE);
        assert_eq!(found(0..PAGES), (PAGES * PAGE) as u64);
        let unmap = |pages: Range<usize>| {
            // SAFETY: the pages are of the mapping, and nothing uses them.
            let failed =
                unsafe { libc::munmap(memory.add(pages.start * PAGE).cast(), pages.len() * PAGE) };
            assert_eq!(failed, 0);
        };
        unmap(6..8);
        unmap(22..23);
        let left = found(0..PAGES);
        unmap(0..6);
        unmap(8..22);
        // Another test may have mapped something there meanwhile.
        assert!(
            ((PAGES - 3) * PAGE..=PAGES * PAGE).contains(&(left as usize)),
            "{left}"
        );
    }

    /// Both ways see what was written to, and nothing of what was not.
    #[test]
    fn touched_pages_are_found_either_way() {
        const PAGES: usize = 40;
        let memory = map(PAGES, libc::MAP_PRIVATE);
        for page in [0, 1, 2, 7, 39] {
            // SAFETY: the page is in the mapping.
            unsafe { memory.add(page * PAGE).write(1) };
        }
        let start = memory.addr();
        let of = |pages: Range<usize>| start + pages.start * PAGE..start + pages.end * PAGE;
        let ranges = [0..5, 5..7, 7..40].map(of);
        for tables in [PageTables::open(), None] {
            let mut found = [0; 3];
            ResidentPages { tables }.each(&ranges, |at, bytes| found[at] = bytes / PAGE as u64);
            assert_eq!(found, [3, 0, 2]);
        }
        // SAFETY: the mapping is this test's, and unused.
        unsafe { libc::munmap(memory.cast(), PAGES * PAGE) };
    }
}
