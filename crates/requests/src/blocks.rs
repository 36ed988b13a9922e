//! The sampled blocks and mappings that are in use: their addresses, with the tokens of their samples.
//!
//! Any thread uses this at any time, also in a signal handler and in the child of a fork. So there is no lock: each
//! slot has an atomic key. Two threads never use the same key at the same time, because a block belongs to one thread
//! from its allocation to its free.
//!
//! A key lies in one of the `WINDOW` slots from the slot of its hash on. If all of them are in use, another table is
//! added, twice as large as the last one. New keys go to the newest table; a search looks at all. So a search takes a
//! bounded time. Most searches are not made at all: [`pages`](crate::pages) tells that there is no such block.

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use crate::pages::Pages;

/// The number of slots that a key may be in.
const WINDOW: usize = 32;
/// The logarithm of the number of slots of the first table, and the largest number of tables.
const FIRST: u32 = 10;
const TABLES: usize = 24;

/// Keys that are no addresses. No key was ever in an empty slot.
const EMPTY: usize = 0;
const REMOVED: usize = 1;
const CHANGING: usize = 2;

#[repr(C)]
struct Slot {
    key: AtomicUsize,
    token: AtomicU64,
    detail: AtomicUsize,
}

impl Slot {
    fn found(&self) -> FoundBlock {
        FoundBlock {
            token: self.token.load(Relaxed),
            detail: self.detail.load(Relaxed),
        }
    }
}

/// The sampled blocks of this process.
pub static BLOCKS: Blocks = Blocks::new();

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// The token of its sample.
    pub token: u64,
    /// The caller's own number, with which the block was added.
    pub detail: usize,
}

/// The place of a block that was added, until its free.
#[derive(Clone, Copy)]
pub struct BlockEntry<'a>(&'a Slot);

impl BlockEntry<'_> {
    /// Sets the token of the block's sample. The block is still the calling thread's alone.
    pub fn set_token(self, token: u64) {
        self.0.token.store(token, Relaxed);
    }
}

/// Blocks by address.
#[derive(Debug)]
pub struct Blocks {
    /// Says of most addresses that they are not here.
    pub pages: Pages,
    tables: [AtomicPtr<Slot>; TABLES],
}

impl Blocks {
    const fn new() -> Self {
        Self {
            pages: Pages::new(),
            tables: [const { AtomicPtr::new(null_mut()) }; TABLES],
        }
    }

    /// Adds a block, with the token of its sample and a number of the caller's own. `None` if there is no memory. The block
    /// was not added before, or was removed.
    pub fn insert(&self, block: *mut c_void, token: u64, detail: usize) -> Option<BlockEntry<'_>> {
        self.pages.add(block);
        let place = self.insert_counted(block, token, detail);
        if place.is_none() {
            self.pages.remove(block);
        }
        place
    }

    fn insert_counted(
        &self,
        block: *mut c_void,
        token: u64,
        detail: usize,
    ) -> Option<BlockEntry<'_>> {
        let key = block as usize;
        for number in 0..TABLES {
            // Only the newest table is filled, or the next one.
            let next = self.tables.get(number + 1);
            if next.is_some_and(|next| !next.load(Acquire).is_null()) {
                continue;
            }
            for slot in self.window(number, key, true)? {
                let old = slot.key.load(Relaxed);
                if old <= REMOVED
                    && slot
                        .key
                        .compare_exchange(old, CHANGING, Acquire, Relaxed)
                        .is_ok()
                {
                    slot.token.store(token, Relaxed);
                    slot.detail.store(detail, Relaxed);
                    slot.key.store(key, Release);
                    return Some(BlockEntry(slot));
                }
            }
        }
        None
    }

    /// Removes a block, if it is here.
    #[inline]
    pub fn remove(&self, block: *mut c_void) -> Option<FoundBlock> {
        if !self.pages.may_have(block) {
            return None;
        }
        let slot = self.slot(block)?;
        let found = slot.found();
        slot.key.store(REMOVED, Release);
        self.pages.remove(block);
        Some(found)
    }

    /// A block, if it is here.
    #[inline]
    pub fn find(&self, block: *mut c_void) -> Option<FoundBlock> {
        if !self.pages.may_have(block) {
            return None;
        }
        self.slot(block).map(Slot::found)
    }

    /// Calls `visit` with the address and the token of each block. What other threads add and remove meanwhile may be left out.
    pub fn each(&self, mut visit: impl FnMut(usize, u64)) {
        for (number, place) in self.tables.iter().enumerate() {
            let table = place.load(Acquire);
            if table.is_null() {
                return;
            }
            let len = (1_usize << (FIRST as usize + number)) + WINDOW;
            // SAFETY: a table has so many slots, and is never freed.
            for slot in unsafe { std::slice::from_raw_parts(table, len) } {
                let key = slot.key.load(Acquire);
                let token = slot.token.load(Relaxed);
                // It may have become another block's meanwhile.
                if key > CHANGING && slot.key.load(Acquire) == key {
                    visit(key, token);
                }
            }
        }
    }

    fn slot(&self, block: *mut c_void) -> Option<&Slot> {
        let key = block as usize;
        // A program may free or unmap null.
        if key <= CHANGING {
            return None;
        }
        for number in 0..TABLES {
            for slot in self.window(number, key, false)? {
                match slot.key.load(Acquire) {
                    there if there == key => return Some(slot),
                    EMPTY => break,
                    _ => {}
                }
            }
        }
        None
    }

    /// The slots of a table in which a key may be. `None` if the table does not exist, or cannot be added.
    fn window(&self, number: usize, key: usize, add: bool) -> Option<&[Slot]> {
        let place = self.tables.get(number)?;
        let bits = FIRST + u32::try_from(number).ok()?;
        let mut table = place.load(Acquire);
        if table.is_null() {
            if !add {
                return None;
            }
            table = Self::add(place, bits)?;
        }
        // The low bits of addresses are equal, and the product mixes the others into its high bits.
        let hash = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let at = hash >> (usize::BITS - bits);
        // SAFETY: a table has `WINDOW` slots more than its hashes need, begins as zeroes and is never freed.
        Some(unsafe { std::slice::from_raw_parts(table.add(at), WINDOW) })
    }

    #[cold]
    fn add(place: &AtomicPtr<Slot>, bits: u32) -> Option<*mut Slot> {
        let bytes = ((1_usize << bits) + WINDOW) * size_of::<Slot>();
        let fresh = map(bytes)?;
        match place.compare_exchange(null_mut(), fresh.cast(), AcqRel, Acquire) {
            Ok(_) => Some(fresh.cast()),
            Err(other) => {
                // SAFETY: mapped above, and nobody else knows it.
                unsafe { libc::syscall(libc::SYS_munmap, fresh, bytes) };
                Some(other)
            }
        }
    }
}

/// Maps memory without a call of `mmap`, which a library with this crate may replace.
fn map(bytes: usize) -> Option<*mut c_void> {
    // SAFETY: a new mapping.
    let address = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            null_mut::<c_void>(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (address != -1).then_some(address as *mut c_void)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Random insertions and removals agree with a map, also when tables are added.
    #[test]
    fn agrees_with_a_map() {
        static BLOCKS: Blocks = Blocks::new();
        let blocks = &BLOCKS;
        let mut model = HashMap::new();
        let mut random = nthbyte_sampling::Random::new(7);
        for round in 0..300_000_u64 {
            let page = random.next_u64() % 60_000 + 1;
            let block = (page << 12) as *mut c_void;
            if let std::collections::hash_map::Entry::Vacant(free) = model.entry(block) {
                assert_eq!(blocks.remove(block), None);
                assert!(blocks.insert(block, round, page as usize).is_some());
                assert_eq!(blocks.find(block).map(|found| found.token), Some(round));
                free.insert(FoundBlock {
                    token: round,
                    detail: page as usize,
                });
            } else if !random.next_u64().is_multiple_of(3) {
                assert_eq!(blocks.remove(block), model.remove(&block));
            }
        }
        let mut listed = HashMap::new();
        blocks.each(|address, token| {
            assert!(listed.insert(address as *mut c_void, token).is_none());
        });
        let expected = model.iter().map(|(&block, found)| (block, found.token));
        assert_eq!(listed, expected.collect());
        for (block, expected) in model {
            assert_eq!(blocks.remove(block), Some(expected));
            assert_eq!(blocks.remove(block), None);
        }
        // The next search is not made.
        assert!((1..=60_000).all(|page| !blocks.pages.may_have((page << 12) as *mut c_void)));
    }

    /// An empty slot is not the block at address 0, whose page may have others.
    #[test]
    fn null_is_no_block() {
        static BLOCKS: Blocks = Blocks::new();
        let neighbour = (1_usize << 32 | 16) as *mut c_void;
        assert!(BLOCKS.insert(neighbour, 5, 6).is_some());
        assert!(BLOCKS.pages.may_have(null_mut()));
        for address in 0..=CHANGING {
            assert_eq!(BLOCKS.remove(address as *mut c_void), None);
        }
        assert_eq!(
            BLOCKS.remove(neighbour),
            Some(FoundBlock {
                token: 5,
                detail: 6
            })
        );
    }

    /// Each thread finds what it inserted, and nothing else, while the others insert and remove.
    #[test]
    fn threads_do_not_disturb_each_other() {
        static BLOCKS: Blocks = Blocks::new();
        let blocks = &BLOCKS;
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                scope.spawn(move || {
                    for round in 0..50 {
                        let keys = (1..400).map(|at| ((at * 4 + thread) << 12) as *mut c_void);
                        for key in keys.clone() {
                            blocks.insert(key, 0, thread).unwrap().set_token(round);
                        }
                        for key in keys {
                            let expected = FoundBlock {
                                token: round,
                                detail: thread,
                            };
                            assert_eq!(blocks.remove(key), Some(expected));
                        }
                    }
                });
            }
        });
    }
}
