//! The allocator of the agents: small blocks from a pool, large ones as mappings, and a reserve for when memory runs out.
//!
//! A library that is an agent makes it its global allocator with [`agent_allocator`](crate::agent_allocator). A program
//! that links this crate keeps an allocator of its own: nothing is taken from the reserve then, memory never counts as
//! short, and the program ends if an allocation of nthbyte fails, as it does when a `Vec` cannot grow.
//!
//! Nothing is the C library's: see `pool` and `mappings`. The reserve is zeroed data of this library:
//! see `region`.
//!
//! `Vec`, `Box` and `Arc` end the process when an allocation fails. Code of the agents that can do without the memory
//! asks with `try_reserve`. For the rest there is the reserve. When the system has no memory, the reserve serves the
//! allocation, and memory counts as *short*: no recording begins, so that events are counted as lost, and the writer
//! thread rests. That bounds the use of the reserve. When the system has memory again, recordings begin again.
//!
//! While there is memory, a small block costs a compare-and-exchange when it is allocated, and one when it is freed.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::mappings::{self, SMALLEST_PAGE};
use super::pool::{self, Pool};
use super::region::{self, Region};

/// AgentMemory is no longer short when the system has this many bytes.
const ENOUGH: usize = 1 << 20;

/// The memory of this library.
static MEMORY: AgentMemory = AgentMemory::new();

/// The global allocator of an agent. All values are the same one.
#[derive(Clone, Copy, Debug)]
pub struct AgentAllocator;

/// Makes [`AgentAllocator`] the global allocator of a library: for those that live in a foreign process.
#[macro_export]
macro_rules! agent_allocator {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::memory::AgentAllocator = $crate::memory::AgentAllocator;
    };
}

// SAFETY: as for the memory.
unsafe impl GlobalAlloc for AgentAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { MEMORY.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { MEMORY.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { MEMORY.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { MEMORY.realloc(pointer, layout, size) }
    }
}

struct AgentMemory {
    pool: Pool,
    reserve: Region,
    is_short: AtomicBool,
    /// Starts and sizes of mappings; 0 in a place that is free.
    large: [[AtomicUsize; 2]; MOST_LARGE],
}

/// Number of large blocks that are known: the rings, buffers and tables of two sessions are some dozens.
const MOST_LARGE: usize = 256;

impl AgentMemory {
    const fn new() -> Self {
        Self {
            pool: Pool::new(),
            reserve: Region::new(),
            is_short: AtomicBool::new(false),
            large: [const { [const { AtomicUsize::new(0) }; 2] }; MOST_LARGE],
        }
    }

    /// Takes memory from the reserve; null if it is used up. Safe in a signal handler.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        self.is_short.store(true, Relaxed);
        self.reserve.take(layout).unwrap_or(null_mut())
    }
}

const fn is_mapping(layout: Layout) -> bool {
    layout.size() > pool::LARGEST && layout.align() <= SMALLEST_PAGE
}

// SAFETY: a block lies in the pool or the reserve, where no other allocation has its bytes, or is a mapping; it is freed to
// where it is from.
unsafe impl GlobalAlloc for AgentMemory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return self.take(layout);
        }
        if is_mapping(layout) {
            return self.map(layout);
        }
        match self.pool.take(layout) {
            Some(block) => block,
            None => self.take(layout),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let block = unsafe { self.alloc(layout) };
        // A mapping has zeroes, and takes no memory until it is used.
        let is_new = is_mapping(layout) && !self.reserve.has(block);
        if !block.is_null() && !is_new {
            // SAFETY: the block has so many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if self.reserve.has(pointer) {
            self.reserve.give_back(pointer, layout);
        } else if is_mapping(layout) {
            self.unmap(pointer, layout);
        } else {
            self.pool.give_back(pointer, layout);
        }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the contract of `realloc`, the size is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if self.reserve.has(pointer) {
            if region::size(new) == region::size(layout) {
                return pointer;
            }
        } else if is_mapping(layout) {
            if is_mapping(new) && !fails() {
                let moved = self.remap(pointer, layout, size);
                if !moved.is_null() {
                    return moved;
                }
            }
        } else if pool::size(new) == pool::size(layout) {
            return pointer;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.relocate(pointer, layout, new) }
    }
}

impl AgentMemory {
    #[cold]
    fn map(&self, layout: Layout) -> *mut u8 {
        let block = mappings::map(layout.size());
        if block.is_null() {
            return self.take(layout);
        }
        self.account(block as usize, layout.size());
        block
    }

    #[cold]
    fn unmap(&self, block: *mut u8, layout: Layout) {
        // Before the address may belong to another block.
        self.discount(block as usize);
        // SAFETY: a mapping of this size, which the caller frees.
        unsafe { mappings::unmap(block, layout.size()) };
    }

    /// Changes the size of a mapping. Null if there is no memory.
    #[cold]
    fn remap(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.discount(block as usize);
        // SAFETY: a mapping of this size.
        let moved = unsafe { mappings::remap(block, layout.size(), size) };
        match moved.is_null() {
            true => self.account(block as usize, layout.size()),
            false => self.account(moved as usize, size),
        }
        moved
    }

    fn account(&self, start: usize, size: usize) {
        // Without a free place, the block is not known.
        let free = |place: &&[AtomicUsize; 2]| {
            place[0]
                .compare_exchange(0, start, Relaxed, Relaxed)
                .is_ok()
        };
        if let Some(place) = self.large.iter().find(free) {
            place[1].store(size, Relaxed);
        }
    }

    /// The inverse of `account`.
    fn discount(&self, start: usize) {
        let ours = |place: &&[AtomicUsize; 2]| {
            place[0].load(Relaxed) == start && {
                place[1].store(0, Relaxed);
                place[0]
                    .compare_exchange(start, 0, Relaxed, Relaxed)
                    .is_ok()
            }
        };
        let _ = self.large.iter().find(ours);
    }

    /// # Safety
    /// As for `realloc`.
    #[cold]
    unsafe fn relocate(&self, pointer: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: both blocks hold the copied bytes, and differ.
        unsafe {
            let block = self.alloc(new);
            if !block.is_null() {
                std::ptr::copy_nonoverlapping(pointer, block, layout.size().min(new.size()));
                self.dealloc(pointer, layout);
            }
            block
        }
    }
}

/// Closes the reserve of this library until it is used, so that `mlockall` does not bring it into memory.
#[cold]
pub fn close_reserve() {
    MEMORY.reserve.close();
}

/// Calls `visit` with the addresses of this library's memory.
pub fn own_memory(visit: &mut dyn FnMut(Range<usize>)) {
    MEMORY.pool.chunks(visit);
    for [start, size] in &MEMORY.large {
        let (start, size) = (start.load(Relaxed), size.load(Relaxed));
        if start > 0 {
            visit(start..start + size);
        }
    }
}

/// Whether memory is short. If the system has memory again, it is not.
#[inline]
pub fn is_short() -> bool {
    MEMORY.is_short.load(Relaxed) && !recovers()
}

#[cold]
fn recovers() -> bool {
    let recovers = has(ENOUGH);
    if recovers {
        MEMORY.is_short.store(false, Relaxed);
    }
    recovers
}

/// Whether the system has this many bytes at the moment, besides [`ENOUGH`] for the rest.
pub fn has(bytes: usize) -> bool {
    Room::hold(bytes.saturating_add(ENOUGH)).is_some()
}

/// AgentMemory of the system that nobody else gets as long as this is held. It is never written.
pub struct Room(*mut u8, usize);

impl Room {
    /// Takes so many bytes, which are not 0. `None` if the system does not have them.
    pub fn hold(bytes: usize) -> Option<Self> {
        if fails() {
            return None;
        }
        let memory = mappings::map(bytes);
        (!memory.is_null()).then(|| Self(memory, bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `hold`.
        unsafe { mappings::unmap(self.0, self.1) };
    }
}

#[cfg(any(test, feature = "test-seams"))]
#[inline]
fn fails() -> bool {
    failing::fails()
}

#[cfg(not(any(test, feature = "test-seams")))]
#[inline]
const fn fails() -> bool {
    false
}

/// Lets allocations of this library fail, for tests.
#[cfg(any(test, feature = "test-seams"))]
pub mod failing {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    static COUNT: AtomicU64 = AtomicU64::new(0);
    static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
    static END: AtomicU64 = AtomicU64::new(u64::MAX);

    /// From now on, lets allocations fail whose numbers, from 0, are `first` to `end` - 1. Returns the number of
    /// allocations since the last call.
    pub fn fail(first: u64, end: u64) -> u64 {
        FIRST.store(u64::MAX, Relaxed);
        END.store(end, Relaxed);
        let count = COUNT.swap(0, Relaxed);
        FIRST.store(first, Relaxed);
        count
    }

    pub(super) fn fails() -> bool {
        let number = COUNT.fetch_add(1, Relaxed);
        number >= FIRST.load(Relaxed) && number < END.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout;

    #[test]
    fn zeroes_are_asked_for_and_had_wherever_a_block_is_from() {
        static MEMORY: AgentMemory = AgentMemory::new();
        let memory = &MEMORY;
        let reserved = || memory.take(layout(64, 8));
        // SAFETY: each block is used within its size, and freed with its layout.
        unsafe {
            memory.dealloc(reserved(), layout(64, 8));
            for size in [64, pool::LARGEST, 3 * pool::LARGEST] {
                let layout = layout(size, 8);
                // What the first one leaves, the second one may get.
                for _ in 0..2 {
                    let block = memory.alloc_zeroed(layout);
                    let content = std::slice::from_raw_parts_mut(block, size);
                    assert!(content.iter().all(|&byte| byte == 0), "{size}");
                    content.fill(7);
                    memory.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn content_survives_growth_between_the_pool_mappings_and_the_reserve() {
        static MEMORY: AgentMemory = AgentMemory::new();
        let memory = &MEMORY;
        // SAFETY: each block is used within its size, and freed with its layout.
        unsafe {
            let mut block = memory.take(layout(4, 4));
            assert!(memory.reserve.has(block) && memory.is_short.load(Relaxed));
            std::ptr::copy_nonoverlapping(b"abcd".as_ptr(), block, 4);
            // In the same block, in the pool, as a mapping that grows, and in the pool again.
            let mut before = 4;
            for (size, is_reserved, mappings) in [
                (64, true, 0),
                (65, false, 0),
                (128, false, 0),
                (pool::LARGEST, false, 0),
                (pool::LARGEST + 1, false, 1),
                (90 * pool::LARGEST, false, 1),
                (5, false, 0),
            ] {
                block = memory.realloc(block, layout(before, 4), size);
                before = size;
                assert_eq!(std::slice::from_raw_parts(block, 4), b"abcd");
                let known = memory
                    .large
                    .iter()
                    .filter(|[_, size]| size.load(Relaxed) > 0);
                let places = (memory.reserve.has(block), known.count());
                assert_eq!(places, (is_reserved, mappings), "{size}");
                block.add(4).write_bytes(7, size - 4);
            }
            memory.dealloc(block, layout(5, 4));
            assert_eq!(memory.alloc(layout(1, 1)), block);
            // Nobody has use for such blocks.
            assert!(memory.alloc(layout(1 << 20, 1 << 16)).is_null());
        }
    }
}
