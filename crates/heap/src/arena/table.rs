//! The table of the address ranges that are arenas.

use core::ops::Range;

use crate::geometry::{ADDRESS_BITS, ARENA_BITS, TABLE_SIZE};
use crate::os;

/// A byte for each 2 MiB of the address space: 1 if it is an arena of this heap. With it, `free` needs one comparison
/// with memory. The table has 64 MiB of address space on x86-64, and uses very little memory: only the OS pages with
/// arenas. Those near the table can be written to from the start ([`ArenaTable::near`]), and the others once they have an
/// arena: so a process that locks its memory has not all of the table in it.
#[derive(Clone, Copy)]
pub struct ArenaTable(*mut u8);

impl ArenaTable {
    /// The table at an address.
    pub const fn at(address: *mut u8) -> Self {
        Self(address)
    }

    /// Whether the address of a block is in an arena. Bits above [`ADDRESS_BITS`] are ignored, so the lookup stays
    /// inside the table. No block has a higher address: the kernel maps memory there only for a program that requests
    /// it, and no allocator does (Documentation/arch/x86/x86_64/5level-paging.rst). A tag in the top byte of a pointer,
    /// as on AArch64, changes nothing.
    ///
    /// Where addresses are limited, the table is mapped only for the addresses of blocks (`reservation.rs`). For other
    /// numbers there is [`Arenas::hold`](super::Arenas::hold).
    #[inline(always)]
    pub fn holds(self, address: *mut u8) -> bool {
        const UNUSED: u32 = usize::BITS - ADDRESS_BITS;
        let index = (address.addr() << UNUSED) >> (UNUSED + ARENA_BITS);
        // SAFETY: `index` < TABLE_SIZE, and the table is mapped for all blocks.
        unsafe { *self.0.add(index) != 0 }
    }

    /// The bytes of the table for addresses less than 512 GiB from the table's own: the kernel puts most mappings there.
    pub fn near(self) -> Range<usize> {
        const DISTANCE: usize = 1 << (39 - ARENA_BITS);
        let own = self.0.addr() >> ARENA_BITS;
        own.saturating_sub(DISTANCE)..(own + DISTANCE).min(TABLE_SIZE)
    }

    /// Makes it possible to note an arena. Returns false if the kernel refuses that.
    ///
    /// # Safety
    /// The arena lies below 2^[`ADDRESS_BITS`].
    #[must_use]
    pub unsafe fn prepare(self, arena: *mut u8) -> bool {
        let index = arena.addr() >> ARENA_BITS;
        // SAFETY: by the caller, the byte is one of the table's.
        self.near().contains(&index) || unsafe { os::make_writable(self.0.add(index), 1) }
    }

    /// Notes that an arena was mapped (`true`) or unmapped.
    ///
    /// # Safety
    /// The table is prepared for the arena.
    pub unsafe fn set(self, arena: *mut u8, is_ours: bool) {
        // SAFETY: by the caller.
        unsafe { *self.0.add(arena.addr() >> ARENA_BITS) = u8::from(is_ours) };
    }
}
