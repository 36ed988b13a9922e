//! A page: 16 KiB of blocks of one size class, behind a header.
//!
//! ```text
//! 0          48                carved                         PAGE_SIZE
//! | header | blocks, in use or free | never touched so far … |
//! ```
//!
//! A page's blocks are in use, on the page's own list, or *out*: on their class's list, from which
//! `malloc` takes them. The page counts only what is on its own list. Blocks are carved from fresh
//! memory an OS page at a time, so that memory is touched only when it is needed.
//!
//! Pages kept for sampled blocks look the same, but their header refers to a slot whose allowance is
//! always 1, so that each free takes the slow path; and each block has 16 bytes before it,
//! its [`Label`]. Classes whose blocks are about as large share such pages.

use crate::class::{BLOCK_SIZES, GROUP_BLOCK_SIZES};
use core::ptr::null_mut;

/// The size of a page in bytes, and its alignment. By measurement: docs/fast-path.md.
pub const PAGE_SIZE: usize = 16 << 10;
/// Where the first block lies: with the last 16 bytes of a line of the processor's cache. These are the
/// collector's links, and the object begins with the next line. Collections take a tenth longer if an object's
/// links are on its own line. By measurement: docs/fast-path.md.
pub const PAGE_HEADER: usize = 48;
/// How much is carved from fresh memory at a time, up to the next multiple of it.
const CARVE: usize = 4 << 10;
/// The bytes before a sampled block.
const LABEL_SIZE: usize = size_of::<Label>();

/// A free block: its first word links it to the next one.
#[repr(C)]
pub struct Block {
    pub next: *mut Block,
}

/// What `malloc` and `free` of one class work on; all there is on the fast path.
#[repr(C)]
pub struct Slot {
    /// The class's list: `malloc` pops it, `free` pushes to it.
    pub head: *mut Block,
    /// One more than the number of blocks that `free` may still push.
    pub allowance: usize,
}

/// What is remembered of a sampled block.
#[derive(Clone, Copy)]
pub struct Tag {
    /// What the observer gave for it.
    pub token: u32,
    /// The session in which that was.
    pub session: u32,
}

/// What is right before a sampled block of a page.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Label {
    pub tag: Tag,
    /// The class of the block; its neighbours' may be another.
    pub class: u8,
}

/// The header of a page. `free` reads `slot` and nothing else of it.
#[repr(C, align(16))]
pub struct Page {
    /// Where blocks of this page are pushed when they are freed.
    pub slot: *mut Slot,
    /// The page's own list of free blocks.
    pub local: *mut Block,
    /// Neighbours in the class's or group's queue of pages that have free blocks; null at the ends.
    pub next: *mut Page,
    pub previous: *mut Page,
    /// How many blocks are on the page's own list.
    pub free: u16,
    /// How many blocks have been carved.
    pub carved: u16,
    /// How many blocks there can be.
    pub capacity: u16,
    /// From one block to the next, in bytes.
    pub stride: u16,
    /// Where the first block lies.
    pub first: u16,
    /// The class of the blocks; the group of their classes, if the page is kept for sampled ones.
    pub class: u8,
    /// Whether the page is kept for sampled blocks.
    pub sampled: bool,
    /// Whether the page is in that queue.
    pub queued: bool,
}

const _: () = assert!(size_of::<Page>() == PAGE_HEADER);

impl Page {
    /// The page in which a block lies.
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

    /// Makes a page for `class`, or for a group of them if it is kept for sampled blocks, at `page`, whose blocks start
    /// after `reserved` bytes.
    ///
    /// # Safety
    /// `page` is a page of this heap that holds nothing.
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
            });
        }
    }

    /// Whether blocks remain to be carved.
    pub fn is_fresh(&self) -> bool {
        self.carved < self.capacity
    }

    /// Whether no block of the page is in use or out.
    pub fn is_empty(&self) -> bool {
        self.free == self.carved
    }

    /// Takes the whole list of free blocks: its head and its length.
    pub fn take_local(&mut self) -> (*mut Block, usize) {
        let list = (self.local, self.free as usize);
        self.local = null_mut();
        self.free = 0;
        list
    }

    /// Takes the first `count` blocks of the page's list, which has at least so many; not 0.
    ///
    /// # Safety
    /// The page is in use, and its list as long as that.
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

    /// Pushes `count` blocks, linked from `first` to `last`.
    ///
    /// # Safety
    /// They belong to this page, nobody uses them, and they are on no list.
    #[allow(clippy::cast_possible_truncation)] // a page has fewer than 2^16 blocks
    pub unsafe fn push_local(&mut self, first: *mut Block, last: *mut Block, count: usize) {
        // SAFETY: by the caller.
        unsafe { (*last).next = self.local };
        self.local = first;
        self.free += count as u16;
    }

    /// Carves up to `most` blocks, as many as begin before the next multiple of [`CARVE`], but
    /// at least one: a list in order of address, and its length.
    ///
    /// # Safety
    /// The page is fresh, `most` is not 0.
    #[allow(clippy::cast_possible_truncation)] // everything is at most a page
    pub unsafe fn carve(page: *mut Self, most: usize) -> (*mut Block, usize) {
        // SAFETY: `carved + count <= capacity`, so the blocks lie in the page, and nobody knows them.
        unsafe {
            let stride = (*page).stride as usize;
            let start = (*page).first as usize + (*page).carved as usize * stride;
            let end = (start + 1).next_multiple_of(CARVE);
            let uncarved = ((*page).capacity - (*page).carved) as usize;
            let count = (end - start).div_ceil(stride).min(uncarved).min(most);
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
