//! Blocks of memory in zeroed data of this library, which takes address space, but no memory until it is used.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use crate::free_list::FreeList;

/// Bytes of the region: the rings of two sessions, and some for writing what is in them.
const BYTES: usize = 8 << 20;
/// Blocks are powers of two, from this size on.
const SMALLEST: usize = 64;
const SIZES: usize = (BYTES / SMALLEST).ilog2() as usize + 1;

pub(crate) struct Region {
    /// The first byte that was never used.
    unused: AtomicUsize,
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
    pub(crate) const fn new() -> Self {
        Self {
            unused: AtomicUsize::new(0),
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
    pub(crate) fn has(&self, block: *mut u8) -> bool {
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
    pub(crate) fn take(&self, layout: Layout) -> Option<*mut u8> {
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
        let unused = self.unused.fetch_update(Relaxed, Relaxed, grow).ok()?;
        Some(end(unused) - size)
    }

    /// Gives a block back that was taken with this layout. Safe in a signal handler.
    #[cold]
    pub(crate) fn give_back(&self, block: *mut u8, layout: Layout) {
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
pub(crate) fn size(layout: Layout) -> Option<usize> {
    let least = layout.size().max(layout.align()).max(SMALLEST);
    let is_aligned = layout.align() <= align_of::<Bytes>();
    least.checked_next_power_of_two().filter(|_| is_aligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

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
}
