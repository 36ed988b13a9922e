//! The header of an arena.

use crate::geometry::{ARENA_HEADER, ARENA_SIZE, PAGE_HEADER};

/// The header of an arena. It lies behind the header of the arena's first page, so that a heap of any size needs no
/// other place for it.
#[repr(C, align(16))]
pub struct Arena {
    /// Neighbours in the queue of arenas with the same number of free pages.
    pub next: *mut Arena,
    pub previous: *mut Arena,
    /// Bit i: page i is free.
    pub free: u128,
    /// Bit i: page i is free and *dirty*: it was used, and there is still memory behind it.
    pub dirty: u128,
    pub backing: Backing,
}

const _: () = assert!(size_of::<Arena>() == ARENA_HEADER);

/// The memory behind an arena.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Ordinary OS pages. They may be collapsed when all of them are in use.
    Ordinary,
    /// Ordinary OS pages that are collapsed as soon as few of the arena's pages are free.
    CollapseSoon,
    /// A huge page, or the kernel may make it one, or it refused to.
    Huge,
}

impl Arena {
    /// Where an arena begins.
    pub fn base(this: *mut Self) -> *mut u8 {
        this.cast::<u8>().wrapping_sub(PAGE_HEADER)
    }

    /// The header of the arena in which an address lies.
    pub fn of(address: *mut u8) -> *mut Self {
        address
            .map_addr(|address| (address & !(ARENA_SIZE - 1)) + PAGE_HEADER)
            .cast()
    }
}
