//! How many sampled blocks begin in an OS page: a filter before the table.
//!
//! A free has the address of its block only. At the default period, one page in a hundred has a sampled block, so one
//! byte tells for most frees that their block is not sampled: a few instructions, and a load of a byte that serves the
//! neighbouring pages too.
//!
//! ```text
//! address   63 … 32 │ 31 … 12 │ 11 … 0
//!                      place: pages that are 4 GiB apart share a count, which costs a search and nothing else
//! ```
//!
//! A count is raised before its block is in the table, and lowered after it was removed. So it is never 0 for a block
//! that is in the table, also in the child of a fork that comes in between.

use std::ffi::c_void;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::memory::SMALLEST_PAGE;

/// The logarithm of the size of the smallest OS page.
pub const PAGE_SHIFT: u32 = SMALLEST_PAGE.trailing_zeros();
const PLACES: usize = 1 << (u32::BITS - PAGE_SHIFT);

/// Counts of blocks, by the page in which they begin. As machine code reads them: one byte each, at
/// `(address as u32) >> PAGE_SHIFT`.
///
/// A mebibyte of zeroes, of which an OS page comes into memory for each 16 MiB with sampled blocks.
#[repr(transparent)]
#[derive(Debug)]
pub struct Pages([AtomicU8; PLACES]);

impl Pages {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; PLACES])
    }

    fn place(&self, block: *mut c_void) -> &AtomicU8 {
        &self.0[(block as usize as u32 >> PAGE_SHIFT) as usize]
    }

    /// Whether a block that was added begins in the page of this one. It may be true for another page.
    #[inline]
    pub fn may_have(&self, block: *mut c_void) -> bool {
        self.place(block).load(Relaxed) != 0
    }

    /// Counts a block. One that is not in the table is searched for in vain.
    pub fn add(&self, block: *mut c_void) {
        self.change(block, u8::saturating_add);
    }

    pub(crate) fn remove(&self, block: *mut c_void) {
        self.change(block, u8::saturating_sub);
    }

    /// A count at its limit stays there: more blocks than it says may have been added.
    fn change(&self, block: *mut c_void, change: fn(u8, u8) -> u8) {
        let changed = |count| (count != u8::MAX).then(|| change(count, 1));
        let _ = self.place(block).fetch_update(Relaxed, Relaxed, changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn block(address: usize) -> *mut c_void {
        address as *mut c_void
    }

    #[test]
    fn a_count_is_that_of_its_page() {
        static PAGES: Pages = Pages::new();
        let (first, last, next) = (
            block(0x7fff_1234_5000),
            block(0x7fff_1234_5ff0),
            block(0x7fff_1234_6000),
        );
        assert!(!PAGES.may_have(first));
        PAGES.add(last);
        PAGES.add(first);
        assert!(PAGES.may_have(first) && PAGES.may_have(last) && !PAGES.may_have(next));
        PAGES.remove(first);
        assert!(PAGES.may_have(last));
        PAGES.remove(last);
        assert!(!PAGES.may_have(first));
    }

    /// A page has more blocks than a byte counts: it is searched for ever.
    #[test]
    fn a_count_at_its_limit_stays() {
        static PAGES: Pages = Pages::new();
        for offset in (0..4096).step_by(8) {
            PAGES.add(block(0x5000 + offset));
        }
        for offset in (0..4096).step_by(8) {
            assert!(PAGES.may_have(block(0x5000 + offset)));
            PAGES.remove(block(0x5000 + offset));
        }
        assert!(PAGES.may_have(block(0x5000)));
    }
}
