//! Small blocks of memory, without a lock and without the C library.
//!
//! A thread of the program may be interrupted anywhere, also inside the C library's `malloc`, and its signal handler may end
//! the process. So the agents take their small blocks from here: then neither that thread nor the writer thread waits for a
//! lock that nobody will release.
//!
//! The sizes of blocks are powers of two, and three quarters of them. Blocks lie in chunks, which are mapped one by one and
//! never unmapped. A block is aligned to the largest power of two that its size is a multiple of.

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use super::free_list::FreeList;
use super::mappings;

const SMALLEST: usize = 32;
/// The largest block.
pub const LARGEST: usize = 8 << 10;
const SIZES: usize = 2 * (LARGEST / SMALLEST).ilog2() as usize + 1;

const CHUNK: usize = 1 << 20;
/// Bytes of a chunk before its blocks. A multiple of the largest block.
const HEADER: usize = 128 << 10;
/// All chunks together are 4 GiB.
const MOST_CHUNKS: usize = 4096;
/// Places of blocks in a chunk. A block's number is its chunk's number times this, and its offset in [`SMALLEST`].
const PLACES: usize = CHUNK / SMALLEST;
const HEADER_PLACES: usize = HEADER / SMALLEST;

/// What a chunk begins with.
struct Header {
    /// The chunk's number.
    number: AtomicUsize,
    /// For each freed block, the number of the next one in its list. A thread may still read it when another one has got
    /// the block, so it is not in the block itself.
    next: [AtomicU32; PLACES - HEADER_PLACES],
}

const _: () = assert!(size_of::<Header>() <= HEADER && HEADER.is_multiple_of(LARGEST));

pub struct Pool {
    /// The first byte that was never used, counted from the first chunk's start. Chunks do not follow each other in memory.
    unused: AtomicUsize,
    freed: [FreeList; SIZES],
    /// Null where there is none yet.
    chunks: [AtomicPtr<Header>; MOST_CHUNKS],
}

impl Pool {
    pub const fn new() -> Self {
        Self {
            unused: AtomicUsize::new(0),
            freed: [const { FreeList::new() }; SIZES],
            chunks: [const { AtomicPtr::new(null_mut()) }; MOST_CHUNKS],
        }
    }

    /// Calls `visit` with the addresses of the chunks.
    pub fn chunks(&self, visit: &mut dyn FnMut(Range<usize>)) {
        for chunk in &self.chunks {
            let start = chunk.load(Relaxed) as usize;
            if start == 0 {
                return;
            }
            visit(start..start + CHUNK);
        }
    }

    /// A block; `None` if the system has no memory, or if the block would be larger than [`LARGEST`]. Safe in a signal
    /// handler.
    #[inline]
    pub fn take(&self, layout: Layout) -> Option<*mut u8> {
        let size = size(layout)?;
        let number = match self.list(size).take(|number| self.next(number)) {
            Some(number) => number as usize,
            None => self.grow(size)?,
        };
        Some(self.block(number))
    }

    /// Gives a block back that was taken with this layout. Safe in a signal handler.
    #[inline]
    pub fn give_back(&self, block: *mut u8, layout: Layout) {
        if let Some(size) = size(layout) {
            let offset = block as usize % CHUNK;
            let header = block.wrapping_sub(offset).cast::<Header>();
            // SAFETY: chunks begin at multiples of their size.
            let chunk = unsafe { (*header).number.load(Relaxed) };
            self.put(chunk * PLACES + offset / SMALLEST, size);
        }
    }

    #[inline]
    fn put(&self, number: usize, size: usize) {
        self.list(size)
            .put(number as u32, |number| self.next(number));
    }

    /// The number of a block that was never used.
    #[cold]
    fn grow(&self, size: usize) -> Option<usize> {
        loop {
            let unused = self.unused.load(Relaxed);
            // Not in the header.
            let first = unused - unused % CHUNK + (unused % CHUNK).max(HEADER);
            let start = first.next_multiple_of(alignment(size));
            let end_of_chunk = (first + 1).next_multiple_of(CHUNK);
            let (start, end_of_gap) = match start + size <= end_of_chunk {
                true => (start, start),
                false => (end_of_chunk + HEADER, end_of_chunk),
            };
            self.map(start / CHUNK)?;
            let grown = self
                .unused
                .compare_exchange(unused, start + size, Relaxed, Relaxed);
            if grown.is_ok() {
                self.put_gap(first..end_of_gap);
                return Some(start / SMALLEST);
            }
        }
    }

    /// Bytes that alignment has left become smaller blocks.
    fn put_gap(&self, gap: Range<usize>) {
        let mut start = gap.start;
        while start < gap.end {
            let size = alignment(start)
                .min(1 << (gap.end - start).ilog2())
                .min(LARGEST);
            self.put(start / SMALLEST, size);
            start += size;
        }
    }

    /// Maps a chunk, if it is not yet.
    fn map(&self, number: usize) -> Option<()> {
        let place = self.chunks.get(number)?;
        if !place.load(Acquire).is_null() {
            return Some(());
        }
        let chunk = mappings::map_aligned(CHUNK);
        let header = chunk.cast::<Header>();
        // SAFETY: if it is not null, it is a new mapping, whose zeroes are a header.
        let header = unsafe { header.as_ref() }?;
        header.number.store(number, Relaxed);
        // A few blocks must not take a huge page.
        // SAFETY: the bytes of the mapping. If the system has no huge pages, it refuses.
        unsafe { libc::madvise(chunk.cast(), CHUNK, libc::MADV_NOHUGEPAGE) };
        let first = place.compare_exchange(null_mut(), chunk.cast(), AcqRel, Relaxed);
        if first.is_err() {
            // SAFETY: nobody else knows this mapping.
            unsafe { mappings::unmap(chunk, CHUNK) };
        }
        Some(())
    }

    #[inline]
    fn list(&self, size: usize) -> &FreeList {
        let power = (size / SMALLEST).ilog2() as usize;
        &self.freed[2 * power + usize::from(!size.is_power_of_two())]
    }

    #[inline]
    fn next(&self, number: u32) -> &AtomicU32 {
        let (chunk, place) = (number as usize / PLACES, number as usize % PLACES);
        // SAFETY: the block was taken once, so its chunk is mapped.
        unsafe { &(*self.chunks[chunk].load(Acquire)).next[place - HEADER_PLACES] }
    }

    #[inline]
    fn block(&self, number: usize) -> *mut u8 {
        let chunk = self.chunks[number / PLACES].load(Acquire).cast::<u8>();
        chunk.wrapping_add(number % PLACES * SMALLEST)
    }
}

/// The largest power of two that this is a multiple of.
const fn alignment(number: usize) -> usize {
    1 << number.trailing_zeros()
}

/// The size of the block for an allocation. `None` if no block is large enough, or aligned enough.
#[inline]
pub fn size(layout: Layout) -> Option<usize> {
    let least = layout.size().max(layout.align()).max(SMALLEST);
    if least > LARGEST {
        return None;
    }
    let power = least.next_power_of_two();
    let part = power / 4;
    let is_enough = 3 * part >= layout.size() && part >= layout.align().max(SMALLEST);
    Some(if is_enough { 3 * part } else { power })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout;

    #[test]
    fn blocks_are_used_again_and_gaps_too() {
        static POOL: Pool = Pool::new();
        let take = |size, align| POOL.take(layout(size, align));
        let start = take(3, 1).unwrap();
        assert_eq!(start as usize % CHUNK, HEADER);
        let take = |size, align| take(size, align).map(|block| block as usize - start as usize);
        assert_eq!(take(65, 64), Some(128));
        assert_eq!(take(384, 512), Some(512));
        // Between them.
        assert_eq!(take(200, 8), Some(256));
        assert_eq!(take(33, 8), Some(64));
        assert_eq!(take(32, 32), Some(32));
        assert_eq!(take(1, 1), Some(1024));
        let give = |offset, size| POOL.give_back(start.wrapping_add(offset), layout(size, 8));
        // The last one first.
        give(64, 33);
        give(128, 65);
        assert_eq!(take(66, 1), Some(128));
        for offset in [0, 32, 1024] {
            give(offset, 32);
        }
        let again = [(); 3].map(|()| take(1, 1));
        assert_eq!(again, [Some(1024), Some(32), Some(0)]);
        assert_eq!(take(64, 1), Some(64));
        assert_eq!(take(LARGEST + 1, 1), None);
        assert_eq!(take(1, 2 * LARGEST), None);
        assert_eq!(take(usize::MAX / 2, 1), None);
    }

    #[test]
    fn blocks_of_all_sizes_in_many_chunks_are_different_and_aligned() {
        static POOL: Pool = Pool::new();
        let sizes =
            (0..6000).map(|turn: usize| (turn.wrapping_mul(2_654_435_761) >> 7) % LARGEST + 1);
        let mut blocks: Vec<_> = sizes
            .map(|size| {
                let align = 1 << (size % 14);
                let layout = layout(size, align);
                let block = POOL.take(layout).unwrap();
                assert!((block as usize).is_multiple_of(align));
                // SAFETY: the block has this size.
                unsafe { block.write_bytes(size as u8, size) };
                (block, layout)
            })
            .collect();
        for &(block, layout) in &blocks {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == layout.size() as u8));
        }
        let mut chunks = 0;
        POOL.chunks(&mut |_| chunks += 1);
        assert!(chunks > 20);
        // They are found again, in whatever order.
        for &(block, layout) in &blocks {
            POOL.give_back(block, layout);
        }
        let mut again: Vec<_> = blocks
            .iter()
            .map(|&(_, layout)| POOL.take(layout).unwrap())
            .collect();
        again.sort_unstable();
        blocks.sort_unstable_by_key(|&(block, _)| block);
        assert!(again.iter().eq(blocks.iter().map(|(block, _)| block)));
    }

    #[test]
    fn threads_get_different_blocks() {
        static POOL: Pool = Pool::new();
        std::thread::scope(|scope| {
            for own in 1..=4_u8 {
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let sizes = [layout(100, 8), layout(70, 8), layout(64 + turn % 64, 8)];
                        let blocks = sizes.map(|layout| POOL.take(layout).unwrap());
                        // SAFETY: the blocks have these sizes, and are this thread's own.
                        unsafe {
                            for (block, layout) in blocks.into_iter().zip(sizes) {
                                block.write_bytes(own, layout.size());
                            }
                            for (block, layout) in blocks.into_iter().zip(sizes) {
                                let bytes = std::slice::from_raw_parts(block, layout.size());
                                assert!(bytes.iter().all(|&byte| byte == own));
                                POOL.give_back(block, layout);
                            }
                        }
                    }
                });
            }
        });
        // Twelve blocks of each size, at most.
        assert!(POOL.unused.load(Relaxed) <= HEADER + 12 * (64 + 96 + 128) + 12 * 128);
    }
}
