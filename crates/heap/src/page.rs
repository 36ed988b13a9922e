//! A page: 16 KiB of blocks of one size class, behind a header.
//!
//! ```text
//! 0          48                                               PAGE_SIZE
//! | header | blocks that were carved | memory never used yet … |
//! ```
//!
//! A block of a page is in use, on the page's own list, or on the list of its class. The page counts only the blocks
//! on its own list. Blocks are *carved* from memory that was never used, one OS page at a time, so that memory is
//! touched only when it is needed.
//!
//! Pages for sampled blocks differ in two ways. Their header refers to a slot whose budget is always spent, so each
//! free takes the slow path. And 16 bytes before each block contain its [`Label`]. A group of classes with similar
//! sizes shares such pages.

use crate::geometry::{
    ALIGNMENT, BLOCK_SIZES, CACHE_LINE, CARVE_SIZE, GROUP_BLOCK_SIZES, LABEL_SIZE, PAGE_HEADER,
    PAGE_SIZE, SLOT_SIZE,
};
use core::ptr::null_mut;

/// Lists of a page with at least this many blocks are taken in order of address.
const SORTED_BLOCKS: usize = 4;

/// A free block. Its first word links it to the next one.
#[repr(C)]
pub struct Block {
    pub next: *mut Block,
}

/// The state of one class on the fast path of `malloc` and `free`.
#[repr(C)]
pub struct Slot {
    /// The class's list: `malloc` pops it, `free` pushes to it.
    pub head: *mut Block,
    /// One more than the number of blocks that `free` may still push.
    pub budget: usize,
}

/// The observer's data for a sampled block.
#[derive(Clone, Copy)]
pub struct Tag {
    /// The observer's number for the block.
    pub token: u32,
    /// The number of the session in which the block was sampled.
    pub session: u32,
}

/// The bytes right before a sampled block of a page.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Label {
    pub tag: Tag,
    /// The class of the block; other blocks of the page may have other classes.
    pub class: u8,
}

/// The order of a list of free blocks by address. A list of at most one block has both.
#[derive(Clone, Copy)]
pub struct Order {
    pub rising: bool,
    pub falling: bool,
}

impl Order {
    /// The order of a list of at most one block.
    pub const ANY: Self = Self {
        rising: true,
        falling: true,
    };

    /// The order of a list that had this order, and to which a block at the address `next` comes after one at `last`,
    /// or of two lists of this order that are linked there.
    pub const fn link(self, last: usize, next: usize) -> Self {
        Self {
            rising: self.rising & (last < next),
            falling: self.falling & (last > next),
        }
    }

    /// The order that both lists have.
    const fn and(self, other: Self) -> Self {
        Self {
            rising: self.rising & other.rising,
            falling: self.falling & other.falling,
        }
    }
}

/// The header of a page. `free` reads only `slot`.
#[repr(C, align(16))]
pub struct Page {
    /// The slot to which freed blocks of this page are pushed.
    pub slot: *mut Slot,
    /// The page's own list of free blocks.
    pub local: *mut Block,
    /// Next and previous page in the queue of pages with free blocks, of the class or the group; null
    /// at the ends.
    pub next: *mut Page,
    pub previous: *mut Page,
    /// Number of blocks on the page's own list.
    pub free: u16,
    /// Number of blocks that were carved.
    pub carved: u16,
    /// Largest number of blocks that can be carved.
    pub capacity: u16,
    /// The distance from one block to the next, in bytes.
    pub stride: u16,
    /// The offset of the first block from the start of the page.
    pub first: u16,
    /// The class of the blocks; in a page for sampled blocks, the group of their classes.
    pub class: u8,
    /// Whether the page is for sampled blocks.
    pub sampled: bool,
    /// Whether the page is in the queue of pages with free blocks.
    pub queued: bool,
    /// The order of the page's own list.
    pub order: Order,
}

const _: () = {
    assert!(size_of::<Page>() == PAGE_HEADER);
    assert!(size_of::<Slot>() == SLOT_SIZE);
    assert!(size_of::<Label>() == LABEL_SIZE);
};

impl Page {
    /// The page that contains a block.
    pub fn of(block: *mut Block) -> *mut Self {
        block.map_addr(|address| address & !(PAGE_SIZE - 1)).cast()
    }

    /// The class of a block.
    ///
    /// # Safety
    /// The block is in use; if it is sampled, its label has been written.
    pub unsafe fn class_of(block: *mut Block) -> usize {
        // SAFETY: by the caller; a block's page has a header, and a sampled block a label before it.
        unsafe {
            let page = Self::of(block);
            usize::from(if (*page).sampled {
                (*label_of(block)).class
            } else {
                (*page).class
            })
        }
    }

    /// Makes a page at `page` for `class`, or for a group of classes if it is for sampled blocks. Its blocks begin
    /// after `reserved` bytes.
    ///
    /// # Safety
    /// `page` is an empty page of this heap.
    #[allow(clippy::cast_possible_truncation)] // everything is at most a page
    pub unsafe fn init(
        page: *mut Self,
        class: usize,
        sampled: bool,
        slot: *mut Slot,
        reserved: usize,
    ) {
        let (size, label) = if sampled {
            (GROUP_BLOCK_SIZES[class], LABEL_SIZE)
        } else {
            (BLOCK_SIZES[class] as usize, 0)
        };
        let first = reserved + label;
        let stride = size + label;
        let capacity = (PAGE_SIZE - reserved) / stride;
        // SAFETY: by the caller.
        unsafe {
            page.write(Self {
                slot,
                local: null_mut(),
                next: null_mut(),
                previous: null_mut(),
                free: 0,
                carved: 0,
                capacity: capacity as u16,
                stride: stride as u16,
                first: first as u16,
                class: class as u8,
                sampled,
                queued: false,
                order: Order::ANY,
            });
        }
    }

    /// Whether more blocks can be carved.
    pub fn is_fresh(&self) -> bool {
        self.carved < self.capacity
    }

    /// Whether all blocks of the page are on its own list.
    pub fn is_empty(&self) -> bool {
        self.free == self.carved
    }

    /// Takes the whole list of free blocks. Returns its head and its length. The list is in order of address, rising or
    /// falling, so that objects created in succession lie in succession, whatever the order of the frees
    /// (docs/fast-path.md).
    ///
    /// # Safety
    /// The page is in use.
    pub unsafe fn take_local(page: *mut Self) -> (*mut Block, usize) {
        // SAFETY: by the caller.
        unsafe {
            let (list, count, order) = ((*page).local, (*page).free as usize, (*page).order);
            (*page).local = null_mut();
            (*page).free = 0;
            (*page).order = Order::ANY;
            if count < SORTED_BLOCKS || order.rising || order.falling {
                return (list, count);
            }
            // More than one free block for two cache lines.
            if count * 2 * CACHE_LINE > (*page).carved_size() {
                Self::prefetch(page);
            }
            (Self::in_order(page, list), count)
        }
    }

    /// The bytes from the start of the first block to the end of the last one that was carved.
    fn carved_size(&self) -> usize {
        self.carved as usize * self.stride as usize
    }

    /// Reads each cache line of the carved blocks. The processor can do this at the same time, but reads the blocks of a
    /// list one after the other.
    ///
    /// # Safety
    /// The page is in use.
    unsafe fn prefetch(page: *const Self) {
        // SAFETY: the blocks that were carved are in the page, and their memory is readable. A thread without the heap's
        // lock may be writing to a block in use; the values do not matter.
        unsafe {
            let start = page.byte_add((*page).first as usize).cast::<u8>();
            for offset in (0..(*page).carved_size()).step_by(CACHE_LINE) {
                start.add(offset).read_volatile();
            }
        }
    }

    /// Links the blocks of a list in order of address. Returns its new head.
    ///
    /// # Safety
    /// The blocks are free blocks of this page, which link to each other.
    unsafe fn in_order(page: *mut Self, list: *mut Block) -> *mut Block {
        const WORD: usize = u64::BITS as usize;
        let mut free = [0_u64; PAGE_SIZE / ALIGNMENT / WORD];
        let mut block = list;
        let mut head = null_mut();
        let mut end = &raw mut head;
        // SAFETY: by the caller. Each bit that is set is a block of the list.
        unsafe {
            while !block.is_null() {
                let place = (block.addr() - page.addr()) / ALIGNMENT;
                free[place / WORD] |= 1 << (place % WORD);
                block = (*block).next;
            }
            for (word, mut bits) in free.into_iter().enumerate() {
                while bits != 0 {
                    let place = word * WORD + bits.trailing_zeros() as usize;
                    let block: *mut Block = page.byte_add(place * ALIGNMENT).cast();
                    *end = block;
                    end = &raw mut (*block).next;
                    bits &= bits - 1;
                }
            }
            *end = null_mut();
        }
        head
    }

    /// Takes the first `count` blocks of the page's list.
    ///
    /// # Safety
    /// The page is in use; `count` is from 1 to the length of its list.
    #[allow(clippy::cast_possible_truncation)] // `count` is at most `free`
    pub unsafe fn take_some(page: *mut Self, count: usize) -> *mut Block {
        // SAFETY: by the caller, each of the `count` blocks exists.
        unsafe {
            let list = (*page).local;
            let mut last = list;
            for _ in 1..count {
                last = (*last).next;
            }
            (*page).local = (*last).next;
            (*last).next = null_mut();
            (*page).free -= count as u16;
            list
        }
    }

    /// Pushes `count` blocks, linked from `first` to `last` in this order.
    ///
    /// # Safety
    /// The blocks belong to this page, are not in use, and are on no list.
    #[allow(clippy::cast_possible_truncation)] // a page has fewer than 2^16 blocks
    pub unsafe fn push_local(
        &mut self,
        first: *mut Block,
        last: *mut Block,
        count: usize,
        order: Order,
    ) {
        self.order = if self.local.is_null() {
            order
        } else {
            order.and(self.order).link(last.addr(), self.local.addr())
        };
        // SAFETY: by the caller.
        unsafe { (*last).next = self.local };
        self.local = first;
        self.free += count as u16;
    }

    /// Carves at most `limit` blocks: those that begin before the next multiple of [`CARVE_SIZE`], but
    /// at least one. Returns a list in order of address, and its length.
    ///
    /// # Safety
    /// The page is fresh, `limit` is not 0.
    #[allow(clippy::cast_possible_truncation)] // everything is at most a page
    pub unsafe fn carve(page: *mut Self, limit: usize) -> (*mut Block, usize) {
        // SAFETY: `carved + count <= capacity`, so the blocks are in the page, and nothing refers to
        // them.
        unsafe {
            let stride = (*page).stride as usize;
            let start = (*page).first as usize + (*page).carved_size();
            let end = (start + 1).next_multiple_of(CARVE_SIZE);
            let uncarved = ((*page).capacity - (*page).carved) as usize;
            let count = (end - start).div_ceil(stride).min(uncarved).min(limit);
            let first: *mut Block = page.byte_add(start).cast();
            let mut block = first;
            for _ in 1..count {
                let next = block.byte_add(stride);
                (*block).next = next;
                block = next;
            }
            (*block).next = null_mut();
            (*page).carved += count as u16;
            (first, count)
        }
    }
}

/// The label of a sampled block.
pub fn label_of(block: *mut Block) -> *mut Label {
    block.cast::<Label>().wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{CLASSES, GROUPS};
    use proptest::prelude::*;
    use std::alloc::{Layout, alloc, dealloc};
    use std::iter::successors;

    fn blocks(list: *mut Block) -> Vec<*mut Block> {
        let some = |block: *mut Block| (!block.is_null()).then_some(block);
        // SAFETY: the lists of these tests contain free blocks.
        successors(some(list), |&block| some(unsafe { (*block).next })).collect()
    }

    proptest! {
        #[test]
        fn free_blocks_are_taken_in_order_of_address(
            class in 0..CLASSES,
            sampled: bool,
            freed in prop_oneof![0..2 * SORTED_BLOCKS, 0..=PAGE_SIZE / ALIGNMENT],
            run in 1_usize..50,
            sorted in 0..3,
            seed: u64,
        ) {
            let class = if sampled { class % GROUPS } else { class };
            let layout = Layout::from_size_align(PAGE_SIZE, PAGE_SIZE).expect("a layout");
            // SAFETY: memory of this test alone, of the size and alignment of a page. Its slot is not used.
            unsafe {
                let page: *mut Page = alloc(layout).cast();
                Page::init(page, class, sampled, null_mut(), PAGE_HEADER);
                let mut all = Vec::new();
                while (*page).is_fresh() {
                    all.extend(blocks(Page::carve(page, usize::MAX).0));
                }
                // An order for each seed, so that some blocks stay in use.
                all.sort_by_key(|block| {
                    (block.addr() as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                });
                all.truncate(freed);
                match sorted {
                    0 => {}
                    1 => all.sort_unstable(),
                    _ => all.sort_unstable_by(|one, other| other.cmp(one)),
                }
                let mut list = Vec::new();
                for run in all.chunks(run) {
                    let (first, last) = (run[0], run[run.len() - 1]);
                    let order = run.windows(2).fold(Order::ANY, |order, pair| {
                        (*pair[0]).next = pair[1];
                        order.link(pair[0].addr(), pair[1].addr())
                    });
                    (*page).push_local(first, last, run.len(), order);
                    list.splice(0..0, run.iter().copied());
                }
                let (head, count) = Page::take_local(page);
                prop_assert_eq!(count, all.len());
                prop_assert_eq!((*page).free, 0);
                if count >= SORTED_BLOCKS && !list.is_sorted_by(|one, next| one > next) {
                    list.sort_unstable();
                }
                prop_assert_eq!(blocks(head), list);
                dealloc(page.cast(), layout);
            }
        }
    }
}
