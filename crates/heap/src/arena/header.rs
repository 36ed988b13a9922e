//! The header of an arena.

use crate::geometry::{ARENA_HEADER, ARENA_SIZE, PAGE_HEADER};

/// The header of an arena. It follows the header of the arena's first page, so a heap of any size needs no other
/// place for it.
#[repr(C, align(16))]
pub struct Arena {
    /// Next and previous arena in the queue of arenas with the same number of free pages.
    pub next: *mut Arena,
    pub previous: *mut Arena,
    /// Bit i: page i is free.
    pub free: u128,
    /// Bit i: page i is free and *dirty*: it was used, and still has memory behind it.
    pub dirty: u128,
    pub backing: Backing,
}

const _: () = assert!(size_of::<Arena>() == ARENA_HEADER);

/// The kind of memory behind an arena.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Backing {
    /// Ordinary OS pages. The arena may be collapsed when all its pages are in use.
    Ordinary,
    /// Ordinary OS pages. The arena is collapsed as soon as few of its pages are free.
    CollapseSoon,
    /// A huge page, or pages that the kernel may make a huge page, or that it refused to make one.
    Huge,
}

/// The bytes of a header's copy.
pub const HEADER_BYTES: usize = ARENA_HEADER;

/// The bits of the free and of the dirty pages in the copy of a header.
pub fn pages_of(copy: &[u8; HEADER_BYTES]) -> (u128, u128) {
    let bits = |offset: usize| {
        let bytes = copy[offset..].first_chunk();
        bytes.map_or(0, |&bytes| u128::from_ne_bytes(bytes))
    };
    (
        bits(core::mem::offset_of!(Arena, free)),
        bits(core::mem::offset_of!(Arena, dirty)),
    )
}

/// Whether the copy of a header is of an arena which is to be a huge page, and of which all memory is there.
pub fn is_whole(copy: &[u8; HEADER_BYTES]) -> bool {
    let (free, dirty) = pages_of(copy);
    copy[core::mem::offset_of!(Arena, backing)] == Backing::Huge as u8 && free & !dirty == 0
}

impl Arena {
    /// The address of the arena.
    pub fn base(this: *mut Self) -> *mut u8 {
        this.cast::<u8>().wrapping_sub(PAGE_HEADER)
    }

    /// The header of the arena that contains an address.
    pub fn of(address: *mut u8) -> *mut Self {
        address
            .map_addr(|address| (address & !(ARENA_SIZE - 1)) + PAGE_HEADER)
            .cast()
    }
}
