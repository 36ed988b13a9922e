//! Blocks of memory in zeroed data of this library, which takes address space, but no memory until it is used.
//!
//! A process that locks its memory (`mlockall`) would have all of it in memory. So most of the region is *closed* when the
//! first session begins: nobody may access it, and it is opened when a block is taken there.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

use super::free_list::FreeList;
use super::mappings::{self, page_size};

/// Bytes of the region: the rings of two sessions, and some for writing their events.
const BYTES: usize = 8 << 20;
/// Bytes that are never closed. With them, small blocks are there also where the kernel refuses to open the rest: a program
/// may set a limit of its writable memory (`RLIMIT_DATA`) at any time.
const OPEN: usize = 256 << 10;
/// Blocks are powers of two, from this size on.
const SMALLEST: usize = 64;
const SIZES: usize = (BYTES / SMALLEST).ilog2() as usize + 1;

pub struct Region {
    /// The first byte that was never used.
    unused: AtomicUsize,
    /// The bytes from here on are closed.
    closed: AtomicUsize,
    /// A block's number is its offset divided by [`SMALLEST`], plus one.
    freed: [FreeList; SIZES],
    /// For each freed block, the number of the next one.
    next: [AtomicU32; BYTES / SMALLEST],
    bytes: Bytes,
}

#[repr(align(4096))]
struct Bytes(UnsafeCell<[MaybeUninit<u8>; BYTES]>);

// SAFETY: `unused` and `freed` give each byte to one allocation at a time.
unsafe impl Sync for Region {}

impl Region {
    pub const fn new() -> Self {
        Self {
            unused: AtomicUsize::new(0),
            closed: AtomicUsize::new(BYTES),
            freed: [const { FreeList::new() }; SIZES],
            next: [const { AtomicU32::new(0) }; BYTES / SMALLEST],
            bytes: Bytes(UnsafeCell::new([MaybeUninit::zeroed(); BYTES])),
        }
    }

    fn start(&self) -> *mut u8 {
        self.bytes.0.get().cast()
    }

    /// Whether a block lies in here.
    #[inline]
    pub fn has(&self, block: *mut u8) -> bool {
        self.offset(block) < BYTES
    }

    #[inline]
    fn offset(&self, block: *mut u8) -> usize {
        (block as usize).wrapping_sub(self.start() as usize)
    }

    const fn next(&self, number: u32) -> &AtomicU32 {
        &self.next[number as usize - 1]
    }

    /// A block; `None` if there is no room. Safe in a signal handler.
    #[cold]
    pub fn take(&self, layout: Layout) -> Option<*mut u8> {
        let size = size(layout)?;
        let offset = match self.list(size)?.take(|number| self.next(number)) {
            Some(number) => (number as usize - 1) * SMALLEST,
            None => self.grow(size)?,
        };
        Some(self.start().wrapping_add(offset))
    }

    /// The offset of a block that was never used.
    fn grow(&self, size: usize) -> Option<usize> {
        // A block of a size that is a power of two is as aligned as it is large.
        let end = |unused: usize| unused.next_multiple_of(size) + size;
        let grow = |unused| Some(end(unused)).filter(|&end| end <= BYTES);
        let unused = self.unused.fetch_update(Acquire, Relaxed, grow).ok()?;
        let end = end(unused);
        if !self.open(end) {
            // The bytes are lost if another thread has taken some behind them.
            let _ = self.unused.compare_exchange(end, unused, Relaxed, Relaxed);
            return None;
        }
        Some(end - size)
    }

    /// Closes what nobody has used. Does nothing if blocks were taken already, or if writable memory is limited: memory
    /// opened then counts again, and the kernel may refuse it.
    pub fn close(&self) {
        if mappings::has_data_limit() {
            return;
        }
        // Meanwhile, there is no room for other threads.
        let begin = self.unused.compare_exchange(0, BYTES, Acquire, Relaxed);
        if begin.is_err() {
            return;
        }
        if self.closed.load(Relaxed) == BYTES {
            let (rest, end) = (self.page_from(OPEN), self.page_end());
            // SAFETY: no block is in use, and each is opened before it is given out.
            if unsafe { mappings::close(self.start().wrapping_add(rest), end - rest) } {
                self.closed.store(rest, Relaxed);
            }
        }
        self.unused.store(0, Release);
    }

    /// Opens all before an offset. Returns false if the kernel refuses that.
    fn open(&self, end: usize) -> bool {
        let closed = self.closed.load(Relaxed);
        if end <= closed {
            return true;
        }
        let end = self.page_from(end);
        // SAFETY: memory of this library.
        let is_open = unsafe { mappings::open(self.start().wrapping_add(closed), end - closed) };
        if is_open {
            self.closed.fetch_max(end, Relaxed);
        }
        is_open
    }

    /// The offset of the first OS page that begins there or behind it. Pages may be larger than the region's alignment.
    fn page_from(&self, offset: usize) -> usize {
        let start = self.start() as usize;
        (start + offset).next_multiple_of(page_size()) - start
    }

    /// The offset behind the last whole OS page.
    fn page_end(&self) -> usize {
        let start = self.start() as usize;
        (start + BYTES) / page_size() * page_size() - start
    }

    /// Gives a block back that was taken with this layout. Safe in a signal handler.
    #[cold]
    pub fn give_back(&self, block: *mut u8, layout: Layout) {
        if let Some(list) = size(layout).and_then(|size| self.list(size)) {
            let number = (self.offset(block) / SMALLEST + 1) as u32;
            list.put(number, |number| self.next(number));
        }
    }

    /// The list of blocks of a size.
    fn list(&self, size: usize) -> Option<&FreeList> {
        self.freed.get((size / SMALLEST).ilog2() as usize)
    }
}

/// The size of the block for an allocation. `None` if no block is large enough, or aligned enough: blocks are aligned as
/// the region is.
pub fn size(layout: Layout) -> Option<usize> {
    let least = layout.size().max(layout.align()).max(SMALLEST);
    let is_aligned = layout.align() <= align_of::<Bytes>();
    least.checked_next_power_of_two().filter(|_| is_aligned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout;

    #[test]
    fn a_region_serves_until_it_is_used_up() {
        static REGION: Region = Region::new();
        let region = &REGION;
        let take = |layout| region.take(layout).map(|block| region.offset(block));
        let one = take(layout(3, 1));
        let two = take(layout(65, 64));
        assert_eq!((one, two), (Some(0), Some(128)));
        assert_eq!(take(layout(BYTES, 1)), None);
        assert_eq!(take(layout(384, 512)), Some(512));
        assert_eq!(take(layout(1, 1 << 20)), None);
        assert_eq!(take(layout(usize::MAX / 2, 1)), None);
        assert_eq!(take(layout(BYTES / 2, 1)), Some(BYTES / 2));
        assert_eq!(take(layout(1, 1)), None);
        let block = |offset| region.start().wrapping_add(offset);
        assert!(region.has(block(BYTES - 1)) && !region.has(block(BYTES)));
        // Blocks are used again, the last one first.
        region.give_back(block(0), layout(3, 1));
        assert_eq!(take(layout(64, 8)), Some(0));
        for offset in [0, 64, 192] {
            region.give_back(block(offset), layout(64, 8));
        }
        let again = [(); 3].map(|()| take(layout(1, 1)));
        assert_eq!(again, [Some(192), Some(64), Some(0)]);
        assert_eq!(take(layout(1, 1)), None);
        region.give_back(block(BYTES / 2), layout(BYTES / 2, 1));
        assert_eq!(take(layout(BYTES / 2 - 5, 1)), Some(BYTES / 2));
    }

    /// How many bytes of a region nobody may access.
    fn closed(region: &Region) -> usize {
        let own = region.start() as usize..region.start() as usize + BYTES;
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let parts = maps.lines().filter_map(|line| {
            let (addresses, rest) = line.split_once(' ')?;
            let (start, end) = addresses.split_once('-')?;
            let start = usize::from_str_radix(start, 16).ok()?.max(own.start);
            let end = usize::from_str_radix(end, 16).ok()?.min(own.end);
            rest.starts_with("---").then(|| end.saturating_sub(start))
        });
        parts.sum()
    }

    #[test]
    fn a_region_is_closed_until_it_is_used() {
        static REGION: Region = Region::new();
        let region = &REGION;
        if mappings::has_data_limit() {
            return;
        }
        for _ in 0..2 {
            region.close();
            assert_eq!(closed(region), BYTES - OPEN);
        }
        let mut taken = 0;
        while let Some(block) = region.take(layout(48 << 10, 1)) {
            // SAFETY: a block of this size.
            unsafe { block.write_bytes(7, 48 << 10) };
            taken += 64 << 10;
            assert_eq!(closed(region), BYTES - taken.max(OPEN));
            // Blocks are in use.
            region.close();
        }
        assert_eq!(taken, BYTES);
    }
}
