//! The allocator of the agents, with a reserve for when memory runs out.
//!
//! A library that is an agent makes it its global allocator with [`agent_allocator`](crate::agent_allocator). A program
//! that links this crate keeps an allocator of its own: nothing is taken from the reserve then, memory never counts as
//! short, and the program ends if an allocation of nthbyte fails, as it does when a `Vec` cannot grow.
//!
//! `Vec`, `Box` and `Arc` end the process when an allocation fails. Code of the agents that can do without the memory
//! asks with `try_reserve`. For the rest there is the reserve: part of this library's zeroed data, so that it takes
//! address space but no memory until it is used. When the system's allocator fails, the reserve serves the
//! allocation, and memory counts as *short*: no recording begins, so that events are counted as lost, and the writer
//! thread rests. That bounds what is taken from the reserve. When the system has memory again, recordings begin again.
//!
//! While there is memory, an allocation costs two comparisons and an atomic addition more than the system's, and freeing
//! one comparison more than that. The addition counts the agent's own memory, for [`crate::composition`].

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crate::system::{self, LARGE};

/// Bytes of the reserve: the rings of two sessions, and some for writing what is in them.
const SIZE: usize = 8 << 20;
/// Blocks of the reserve are powers of two, from this size on.
const SMALLEST: usize = 64;
/// Number of sizes.
const SIZES: usize = (SIZE / SMALLEST).ilog2() as usize + 1;
/// Memory is no longer short when the system has this many bytes.
const ENOUGH: usize = 1 << 20;

/// The one of this library.
static RESERVE: Reserve = Reserve::new();

/// The global allocator of an agent: the system's, with the reserve behind it. All values are the same one.
#[derive(Clone, Copy, Debug)]
pub struct AgentAllocator;

/// Makes [`AgentAllocator`] the global allocator of a library: for those that live in a foreign process.
#[macro_export]
macro_rules! agent_allocator {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::AgentAllocator = $crate::AgentAllocator;
    };
}

// SAFETY: as for the reserve.
unsafe impl GlobalAlloc for AgentAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { RESERVE.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { RESERVE.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { RESERVE.realloc(pointer, layout, size) }
    }
}

struct Reserve {
    /// The first byte that was never used.
    unused: AtomicUsize,
    /// For each size, the list of freed blocks: the first one's number (its offset divided by [`SMALLEST`], plus one;
    /// 0 is the end) in the lower half. The upper half counts changes, so that a list that has changed meanwhile is never
    /// taken for the same one.
    freed: [AtomicU64; SIZES],
    /// For each block in a list, the number of the next one. A thread may still read it when another one has got the
    /// block, so it is not in the block itself.
    next: [AtomicU32; SIZE / SMALLEST],
    is_short: AtomicBool,
    /// Bytes of blocks of the system below [`LARGE`].
    small: AtomicUsize,
    /// Starts and sizes of the system's blocks from [`LARGE`] on; 0 in a place that is free.
    large: [[AtomicUsize; 2]; MOST_LARGE],
    bytes: Bytes,
}

/// Number of large blocks that are known: the rings, buffers and tables of two sessions are some dozens.
const MOST_LARGE: usize = 64;

#[repr(align(4096))]
struct Bytes(UnsafeCell<[MaybeUninit<u8>; SIZE]>);

// SAFETY: `unused` and `freed` give each byte to one allocation at a time.
unsafe impl Sync for Reserve {}

impl Reserve {
    const fn new() -> Self {
        Self {
            unused: AtomicUsize::new(0),
            freed: [const { AtomicU64::new(0) }; SIZES],
            next: [const { AtomicU32::new(0) }; SIZE / SMALLEST],
            is_short: AtomicBool::new(false),
            small: AtomicUsize::new(0),
            large: [const { [const { AtomicUsize::new(0) }; 2] }; MOST_LARGE],
            bytes: Bytes(UnsafeCell::new([MaybeUninit::zeroed(); SIZE])),
        }
    }

    fn start(&self) -> *mut u8 {
        self.bytes.0.get().cast()
    }

    #[inline]
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        let offset = (pointer as usize).wrapping_sub(self.start() as usize);
        (offset < SIZE).then_some(offset)
    }

    /// The number of the next freed block.
    const fn next(&self, number: u32) -> &AtomicU32 {
        &self.next[number as usize - 1]
    }

    /// Takes memory from the reserve; null if it is used up. Safe in a signal handler.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        self.is_short.store(true, Relaxed);
        let Some((size, list)) = self.list(layout) else {
            return null_mut();
        };
        let pop = |head: u64| match head as u32 {
            0 => None,
            first => Some(changed(head, self.next(first).load(Relaxed))),
        };
        let offset = match list.fetch_update(AcqRel, Acquire, pop) {
            Ok(head) => (head as u32 as usize - 1) * SMALLEST,
            Err(_) => {
                // A block of a size that is a power of two is as aligned as it is large.
                let end = |unused: usize| unused.next_multiple_of(size) + size;
                let grow = |unused| Some(end(unused)).filter(|&end| end <= SIZE);
                match self.unused.fetch_update(Relaxed, Relaxed, grow) {
                    Ok(unused) => end(unused) - size,
                    Err(_) => return null_mut(),
                }
            }
        };
        self.start().wrapping_add(offset)
    }

    /// Gives a block back.
    #[cold]
    fn give_back(&self, offset: usize, layout: Layout) {
        if let Some((_, list)) = self.list(layout) {
            let number = (offset / SMALLEST + 1) as u32;
            let push = |head: u64| {
                self.next(number).store(head as u32, Relaxed);
                Some(changed(head, number))
            };
            let _ = list.fetch_update(AcqRel, Acquire, push);
        }
    }

    /// The size of the block for an allocation, and the list of that size. `None` if there is none.
    fn list(&self, layout: Layout) -> Option<(usize, &AtomicU64)> {
        let least = layout.size().max(layout.align()).max(SMALLEST);
        let size = least.checked_next_power_of_two()?;
        let list = self.freed.get((size / SMALLEST).ilog2() as usize)?;
        // Blocks are aligned as the reserve is.
        (layout.align() <= align_of::<Bytes>()).then_some((size, list))
    }
}

/// The head of a list whose first block is another one now.
const fn changed(head: u64, first: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | first as u64
}

// SAFETY: memory is the system's, or bytes of the reserve that no other allocation has; it is freed to where it is from.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = match fails() {
            true => null_mut(),
            // SAFETY: passed on to the caller.
            false => unsafe { system::alloc(layout) },
        };
        if memory.is_null() {
            return self.take(layout);
        }
        self.account(memory, layout.size());
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match self.offset(pointer) {
            Some(offset) => self.give_back(offset, layout),
            // SAFETY: the memory is the system's.
            None => unsafe {
                self.discount(pointer, layout.size());
                system::dealloc(pointer, layout);
            },
        }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.offset(pointer).is_none() && !fails() {
            // Before the address may belong to another block.
            self.discount(pointer, layout.size());
            // SAFETY: the memory is the system's.
            let memory = unsafe { system::realloc(pointer, layout, size) };
            if !memory.is_null() {
                self.account(memory, size);
                return memory;
            }
            self.account(pointer, layout.size());
        }
        // SAFETY: passed on to the caller.
        unsafe { self.relocate(pointer, layout, size) }
    }
}

impl Reserve {
    /// Counts a block of the system.
    #[inline]
    fn account(&self, block: *mut u8, size: usize) {
        if size < LARGE {
            self.small.fetch_add(size, Relaxed);
        } else {
            self.account_large(block as usize, size);
        }
    }

    /// The inverse of `account`, before the block is freed.
    #[inline]
    fn discount(&self, block: *mut u8, size: usize) {
        if size < LARGE {
            self.small.fetch_sub(size, Relaxed);
        } else {
            self.discount_large(block as usize);
        }
    }

    #[cold]
    fn account_large(&self, start: usize, size: usize) {
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

    #[cold]
    fn discount_large(&self, start: usize) {
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
    unsafe fn relocate(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the new size is valid by the contract of `realloc`. Both blocks hold the copied bytes, and differ.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(pointer, new, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

/// Whether [`AgentAllocator`] is the global allocator, so that the library's own memory is counted: a session has blocks.
pub(crate) fn is_counted() -> bool {
    small_bytes() > 0
}

/// Bytes of this library's blocks that are too small for a mapping of their own.
pub(crate) fn small_bytes() -> u64 {
    RESERVE.small.load(Relaxed) as u64
}

/// Calls `visit` with the addresses of this library's large blocks.
pub(crate) fn large_blocks(visit: &mut dyn FnMut(Range<usize>)) {
    for [start, size] in &RESERVE.large {
        let (start, size) = (start.load(Relaxed), size.load(Relaxed));
        if start > 0 {
            visit(start..start + size);
        }
    }
}

/// Whether memory is short. If the system has memory again, it is not.
#[inline]
pub(crate) fn is_short() -> bool {
    RESERVE.is_short.load(Relaxed) && !recovers()
}

#[cold]
fn recovers() -> bool {
    let recovers = has(ENOUGH);
    if recovers {
        RESERVE.is_short.store(false, Relaxed);
    }
    recovers
}

/// Whether the system has this many bytes at the moment, besides [`ENOUGH`] for the rest.
pub(crate) fn has(bytes: usize) -> bool {
    Room::hold(bytes.saturating_add(ENOUGH)).is_some()
}

/// Memory of the system that nobody else gets as long as this is held. It is never written.
pub(crate) struct Room(*mut u8, usize);

impl Room {
    /// Takes so many bytes, which are not 0. `None` if the system does not have them.
    pub(crate) fn hold(bytes: usize) -> Option<Self> {
        if fails() {
            return None;
        }
        let memory = system::map(bytes);
        (!memory.is_null()).then(|| Self(memory, bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `hold`.
        unsafe { system::unmap(self.0, self.1) };
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

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn the_reserve_serves_until_it_is_used_up() {
        static RESERVE: Reserve = Reserve::new();
        let reserve = &RESERVE;
        let one = reserve.take(layout(3, 1));
        let two = reserve.take(layout(65, 64));
        assert_eq!(
            (reserve.offset(one), reserve.offset(two)),
            (Some(0), Some(128))
        );
        assert_eq!(two as usize % 64, 0);
        assert!(reserve.is_short.load(Relaxed));
        assert!(reserve.take(layout(SIZE, 1)).is_null());
        let aligned = reserve.take(layout(384, 512));
        assert_eq!(aligned as usize % 512, 0);
        assert!(reserve.take(layout(1, 1 << 20)).is_null());
        assert!(reserve.take(layout(usize::MAX / 2, 1)).is_null());
        let half = reserve.take(layout(SIZE / 2, 1));
        assert_eq!(reserve.offset(half), Some(SIZE / 2));
        assert!(reserve.take(layout(1, 1)).is_null());
        assert_eq!(reserve.offset(reserve.start().wrapping_add(SIZE)), None);
        // Blocks are used again, the last one first.
        reserve.give_back(0, layout(3, 1));
        assert_eq!(reserve.take(layout(64, 8)), one);
        for offset in [0, 64, 192] {
            reserve.give_back(offset, layout(64, 8));
        }
        let again = [(); 3].map(|()| reserve.offset(reserve.take(layout(1, 1))));
        assert_eq!(again, [Some(192), Some(64), Some(0)]);
        assert!(reserve.take(layout(1, 1)).is_null());
        reserve.give_back(SIZE / 2, layout(SIZE / 2, 1));
        assert_eq!(reserve.take(layout(SIZE / 2 - 5, 1)), half);
    }

    #[test]
    fn threads_get_different_blocks() {
        static RESERVE: Reserve = Reserve::new();
        std::thread::scope(|scope| {
            for own in 1..=4_u8 {
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let sizes = [layout(100, 8), layout(70, 8), layout(64 + turn % 64, 8)];
                        let blocks = sizes.map(|layout| RESERVE.take(layout));
                        // SAFETY: the blocks have these sizes, and are this thread's own.
                        unsafe {
                            for (block, layout) in blocks.into_iter().zip(sizes) {
                                block.write_bytes(own, layout.size());
                            }
                            for (block, layout) in blocks.into_iter().zip(sizes) {
                                let bytes = std::slice::from_raw_parts(block, layout.size());
                                assert!(bytes.iter().all(|&byte| byte == own));
                                RESERVE.give_back(RESERVE.offset(block).unwrap(), layout);
                            }
                        }
                    }
                });
            }
        });
        // Twelve blocks of 128 bytes, four of 64, and as many gaps between them.
        assert!(RESERVE.unused.load(Relaxed) <= 12 * 128 + 4 * 64 + 4 * 64);
    }

    #[test]
    fn content_survives_growth_between_the_system_and_the_reserve() {
        static RESERVE: Reserve = Reserve::new();
        let reserve = &RESERVE;
        // SAFETY: each block is used within its size, and freed with its layout.
        unsafe {
            let inside = reserve.take(layout(4, 4));
            std::ptr::copy_nonoverlapping(b"abcd".as_ptr(), inside, 4);
            let outside = reserve.realloc(inside, layout(4, 4), 9);
            assert_eq!(std::slice::from_raw_parts(outside, 4), b"abcd");
            assert_eq!(reserve.offset(outside), None);
            assert_eq!(reserve.take(layout(4, 4)), inside);
            reserve.dealloc(outside, layout(9, 4));
        }
    }
}
