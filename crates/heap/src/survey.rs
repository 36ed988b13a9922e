//! The use of a heap's pages, read by a thread that does not hold the heap's lock.
//!
//! The heap counts the blocks of each class, but not where they are: that is in the headers of its pages, which change and
//! may be unmapped meanwhile. So a survey copies headers through the kernel ([`Copies`]), checks what it gets, and leaves
//! out what makes no sense. Its figures hold for a moment within microseconds for each arena; blocks on the list of a
//! class count as used.
//!
//! A survey looks at a limited number of arenas. If there are more, it takes every second, third, … and multiplies.

use crate::arena::{HEADER_BYTES, is_whole, pages_of};
use crate::geometry::{
    ARENA_BITS, ARENA_SIZE, BLOCK_SIZES, CLASSES, GROUPS, PAGE_HEADER, PAGE_SIZE, PAGES_PER_ARENA,
    STATE_SIZE, TABLE_SIZE,
};
use crate::heap::Heap;
use crate::observer::BlockDomain;
use crate::os;
use crate::page::Page;
use core::mem::{MaybeUninit, offset_of};

/// A page is sparse if at most this part of its memory (a quarter) is in use.
const SPARSE: usize = 4;

/// Copies memory that may be unmapped at any time.
pub trait Copies {
    /// Copies `length` bytes from each address to `into`, one after the other. Returns whether all could be read.
    fn copy(&mut self, addresses: &[usize], length: usize, into: &mut [u8]) -> bool;
}

/// The use of a heap's pages, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Pages that hold blocks.
    pub pages: u64,
    /// Blocks in use in them, of their rounded sizes. A label before a sampled block counts with it.
    pub blocks: u64,
    /// Free blocks in them that were in use before.
    pub free_blocks: u64,
    /// Free pages with memory behind them, in arenas with pages in use.
    pub free_pages: u64,
    /// The same in arenas without a page in use.
    pub free_arenas: u64,
    /// Pages of which at most a quarter is in use.
    pub sparse_pages: u64,
    /// Free blocks in those.
    pub sparse_free: u64,
    /// The largest request for an object that the heap serves.
    pub limit: u64,
}

/// The use of the pages of one block size in one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The arena's number: its address divided by its size.
    pub arena: u32,
    /// The size of the blocks, in bytes.
    pub block: u32,
    /// Number of blocks in use.
    pub used: u32,
    /// Number of free blocks that were in use before.
    pub free: u32,
}

/// The number of the arena that contains an address.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // addresses have 48 bits at most
pub const fn arena_number(address: usize) -> u32 {
    (address >> ARENA_BITS) as u32
}

/// The numbers of blocks of one class in an arena.
#[derive(Clone, Copy, Default)]
struct Blocks {
    used: u32,
    free: u32,
}

impl Heap {
    /// Surveys a heap. At most `most` arenas are looked at; `visit` is called for each of their block sizes with free
    /// blocks. Pages for sampled blocks are not visited. `None` if the heap cannot be read. The cost is 10 to 40 µs for
    /// each arena.
    ///
    /// # Safety
    /// `heap` is the address of a heap that is never unmapped. Any thread may call this.
    #[must_use]
    pub unsafe fn survey(
        heap: *const Self,
        most: usize,
        copies: &mut dyn Copies,
        visit: &mut dyn FnMut(Use),
    ) -> Option<Survey> {
        let (base, state) = state_of(heap, copies)?;
        // SAFETY: only numbers in the copy are read.
        let (span, count, limit) = unsafe {
            let state = state.as_ptr();
            (
                (*state).arenas.span(),
                (*state).arenas.count,
                (*state).limits[BlockDomain::Object as usize],
            )
        };
        let stride = count.div_ceil(most.max(1)).max(1);
        let mut sum = Survey::default();
        let (mut seen, mut looked_at) = (0_usize, 0_u64);
        for_each_arena(base, span, copies, &mut |arena, copies| {
            seen += 1;
            if (seen - 1).is_multiple_of(stride) && sum.arena(arena, copies, visit).is_some() {
                looked_at += 1;
            }
        });
        if looked_at > 0 && looked_at < seen as u64 {
            sum.multiply(seen as u64, looked_at);
        }
        sum.limit = limit as u64;
        Some(sum)
    }

    /// The addresses of a heap's state and its arena table. Where addresses are limited, parts of the table are not mapped.
    ///
    /// # Safety
    /// `heap` is the address of a heap that is never unmapped. Any thread may call this.
    #[must_use]
    pub unsafe fn own_memory(
        heap: *const Self,
        copies: &mut dyn Copies,
    ) -> Option<core::ops::Range<usize>> {
        let (base, _) = state_of(heap, copies)?;
        Some(base..base + STATE_SIZE + TABLE_SIZE)
    }

    /// Calls `visit` with the addresses of each arena, in order; with none if the heap cannot be read.
    ///
    /// # Safety
    /// `heap` is the address of a heap that is never unmapped. Any thread may call this.
    pub unsafe fn arenas(
        heap: *const Self,
        copies: &mut dyn Copies,
        visit: &mut dyn FnMut(core::ops::Range<usize>),
    ) {
        let Some((base, state)) = state_of(heap, copies) else {
            return;
        };
        // SAFETY: only numbers in the copy are read.
        let span = unsafe { (*state.as_ptr()).arenas.span() };
        for_each_arena(base, span, copies, &mut |arena, _| {
            visit(arena..arena + ARENA_SIZE);
        });
    }
}

impl Heap {
    /// Makes arenas huge pages again that should be: a process that is copied loses them, because the first write to a huge page
    /// that two processes share splits it. Looks at arenas from a number on, and stops when it has asked the kernel for `most`
    /// of them. Returns the number of the next arena; `None` if there is none. Each costs about a millisecond if it was split,
    /// and microseconds otherwise.
    ///
    /// # Safety
    /// `heap` is the address of a heap that is never unmapped. Any thread may call this: an arena that is unmapped meanwhile,
    /// or mapped by somebody else, keeps its content.
    pub unsafe fn collapse_again(
        heap: *const Self,
        from: u32,
        most: usize,
        copies: &mut dyn Copies,
    ) -> Option<u32> {
        let (base, state) = state_of(heap, copies)?;
        // SAFETY: only numbers in the copy are read.
        let span = unsafe { (*state.as_ptr()).arenas.span() };
        let (mut left, mut next) = (most, None);
        let numbers = span.start.max(from as usize)..span.end;
        for_each_arena(base, numbers, copies, &mut |arena, copies| {
            let mut header = [0u8; HEADER_BYTES];
            if next.is_some()
                || !copies.copy(&[arena + PAGE_HEADER], HEADER_BYTES, &mut header)
                || !is_whole(&header)
            {
                return;
            }
            if left == 0 {
                next = Some(arena_number(arena));
                return;
            }
            left -= 1;
            // SAFETY: the content of the memory stays, whoever's it is.
            unsafe { os::collapse(core::ptr::with_exposed_provenance_mut(arena), ARENA_SIZE) };
        });
        next
    }
}

/// The address of a heap's state, which may have been moved, and a copy of it. Only plain numbers in it may be read.
fn state_of(heap: *const Heap, copies: &mut dyn Copies) -> Option<(usize, MaybeUninit<Heap>)> {
    let state = copy_of(heap.addr(), copies)?;
    // SAFETY: the field has been a valid value since the heap was made. It changes once; a copy of half of the change is
    // an address that cannot be read, or the moved state.
    let moved = unsafe { &(*state.as_ptr()).shared };
    match moved.map(|shared| shared.address()) {
        None => Some((heap.addr(), state)),
        Some(moved) => Some((moved, copy_of(moved, copies)?)),
    }
}

/// Bytes of the arena table that are copied at a time.
const TABLE_PART: usize = 4096;

/// Calls `visit` with the address of each arena among these numbers.
fn for_each_arena(
    base: usize,
    numbers: core::ops::Range<usize>,
    copies: &mut dyn Copies,
    visit: &mut dyn FnMut(usize, &mut dyn Copies),
) {
    let numbers = numbers.start..numbers.end.min(TABLE_SIZE);
    let mut part = [0u8; TABLE_PART];
    let mut at = numbers.start;
    while at < numbers.end {
        // Within one OS page: the next one may not be mapped.
        let length = (TABLE_PART - at % TABLE_PART).min(numbers.end - at);
        let part = &mut part[..length];
        if copies.copy(&[base + STATE_SIZE + at], length, part) {
            for (offset, _) in part
                .iter()
                .enumerate()
                .filter(|(_, is_ours)| **is_ours != 0)
            {
                visit((at + offset) << ARENA_BITS, copies);
            }
        }
        at += length;
    }
}

/// A copy of a heap's state. Only plain numbers in it may be read.
fn copy_of(address: usize, copies: &mut dyn Copies) -> Option<MaybeUninit<Heap>> {
    let mut state = MaybeUninit::<Heap>::zeroed();
    // SAFETY: these are the bytes of `state`, which are all zero.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(state.as_mut_ptr().cast::<u8>(), size_of::<Heap>())
    };
    copies
        .copy(&[address], size_of::<Heap>(), bytes)
        .then_some(state)
}

impl Survey {
    /// Adds an arena. `None` if it cannot be read any more.
    fn arena(
        &mut self,
        base: usize,
        copies: &mut dyn Copies,
        visit: &mut dyn FnMut(Use),
    ) -> Option<()> {
        let mut words = [0u8; HEADER_BYTES];
        if !copies.copy(&[base + PAGE_HEADER], HEADER_BYTES, &mut words) {
            return None;
        }
        let (free, dirty) = pages_of(&words);
        let dirty_bytes = u64::from((free & dirty).count_ones()) * PAGE_SIZE as u64;
        if free == u128::MAX {
            self.free_arenas += dirty_bytes;
            return Some(());
        }
        let mut addresses = [0; PAGES_PER_ARENA as usize];
        let mut pages = 0;
        for page in 0..PAGES_PER_ARENA {
            if free >> page & 1 == 0 {
                addresses[pages] = base + page as usize * PAGE_SIZE;
                pages += 1;
            }
        }
        let mut headers = [0u8; PAGES_PER_ARENA as usize * PAGE_HEADER];
        let headers = &mut headers[..pages * PAGE_HEADER];
        if !copies.copy(&addresses[..pages], PAGE_HEADER, headers) {
            return None;
        }
        self.free_pages += dirty_bytes;
        let mut classes = [Blocks::default(); CLASSES];
        for header in headers.chunks_exact(PAGE_HEADER) {
            self.page(header, &mut classes);
        }
        for (class, blocks) in classes.iter().enumerate() {
            if blocks.free > 0 {
                visit(Use {
                    arena: arena_number(base),
                    block: BLOCK_SIZES[class],
                    used: blocks.used,
                    free: blocks.free,
                });
            }
        }
        Some(())
    }

    fn page(&mut self, header: &[u8], classes: &mut [Blocks; CLASSES]) {
        // A page that is being made may have any bytes, so that the header is not read as a `Page`.
        let number =
            |offset: usize| usize::from(u16::from_ne_bytes([header[offset], header[offset + 1]]));
        let free = number(offset_of!(Page, free));
        let carved = number(offset_of!(Page, carved));
        let capacity = number(offset_of!(Page, capacity));
        let stride = number(offset_of!(Page, stride));
        let class = usize::from(header[offset_of!(Page, class)]);
        let is_sampled = header[offset_of!(Page, sampled)] != 0;
        let classes_of_page = if is_sampled { GROUPS } else { CLASSES };
        let is_valid = free <= carved
            && carved <= capacity
            && capacity * stride <= PAGE_SIZE
            && class < classes_of_page;
        if !is_valid {
            return;
        }
        let used = carved - free;
        self.pages += PAGE_SIZE as u64;
        self.blocks += (used * stride) as u64;
        self.free_blocks += (free * stride) as u64;
        if used * stride * SPARSE <= PAGE_SIZE {
            self.sparse_pages += PAGE_SIZE as u64;
            self.sparse_free += (free * stride) as u64;
        }
        if !is_sampled {
            #[allow(clippy::cast_possible_truncation)] // a page has fewer than 2^16 blocks
            let add = |sum: &mut u32, blocks: usize| *sum += blocks as u32;
            add(&mut classes[class].used, used);
            add(&mut classes[class].free, free);
        }
    }

    /// Multiplies the figures by `all / part`.
    fn multiply(&mut self, all: u64, part: u64) {
        let Self {
            pages,
            blocks,
            free_blocks,
            free_pages,
            free_arenas,
            sparse_pages,
            sparse_free,
            limit: _,
        } = self;
        let figures = [
            pages,
            blocks,
            free_blocks,
            free_pages,
            free_arenas,
            sparse_pages,
            sparse_free,
        ];
        for figure in figures {
            *figure = figure.saturating_mul(all) / part;
        }
    }
}

#[cfg(test)]
mod tests;
