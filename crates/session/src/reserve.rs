//! The allocator of the agents, with a reserve for when memory runs out.
//!
//! `Vec`, `Box` and `Arc` end the process when an allocation fails. Code of the agents that can do without the memory
//! asks with `try_reserve`. For the rest there is the reserve: part of this library's zeroed data, so that it takes
//! address space but no memory until it is used. When the system's allocator fails, the reserve serves the
//! allocation, and memory counts as *short*: no recording begins, so that events are counted as lost, and the writer
//! thread rests. That bounds what is taken from the reserve. When the system has memory again, recordings begin again.
//!
//! While there is memory, an allocation costs one comparison more than the system's, and freeing two.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Bytes of the reserve. A recording takes a few hundred bytes; a full ring that is written at the end takes less than
/// a megabyte.
const SIZE: usize = 4 << 20;
/// Memory is no longer short when the system has this many bytes.
const ENOUGH: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Reserve = Reserve::new();

struct Reserve {
    /// The number of live allocations in the upper half, and the first unused byte in the lower one.
    state: AtomicU64,
    is_short: AtomicBool,
    bytes: Bytes,
}

#[repr(align(64))]
struct Bytes(UnsafeCell<[MaybeUninit<u8>; SIZE]>);

// SAFETY: `state` gives each byte to one allocation at a time.
unsafe impl Sync for Reserve {}

const ONE: u64 = 1 << 32;

impl Reserve {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
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

    /// Takes memory from the reserve; null if it is used up.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        self.is_short.store(true, Relaxed);
        let start = self.start();
        let mut taken = start;
        let take = |state: u64| {
            let used = (state % ONE) as usize;
            let padding = (start as usize + used).wrapping_neg() % layout.align();
            let first = used + padding;
            let end = first
                .checked_add(layout.size())
                .filter(|&end| end <= SIZE)?;
            taken = start.wrapping_add(first);
            Some((state / ONE + 1) * ONE + end as u64)
        };
        match self.state.fetch_update(AcqRel, Acquire, take) {
            Ok(_) => taken,
            Err(_) => null_mut(),
        }
    }

    /// Gives memory back. Bytes are used again if they were the last ones, or when no allocation is left.
    #[cold]
    fn give_back(&self, offset: usize, size: usize) {
        let _ = self.state.fetch_update(AcqRel, Acquire, |state| {
            let (live, used) = (state / ONE - 1, (state % ONE) as usize);
            let used = match live {
                0 => 0,
                _ if offset + size == used => offset,
                _ => used,
            };
            Some(live * ONE + used as u64)
        });
    }
}

// SAFETY: memory is the system's, or bytes of the reserve that no other allocation has; it is freed to where it is from.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let memory = unsafe { system(layout) };
        if memory.is_null() {
            return self.take(layout);
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match self.offset(pointer) {
            Some(offset) => self.give_back(offset, layout.size()),
            // SAFETY: the memory is the system's.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.offset(pointer).is_none() && !fails() {
            // SAFETY: the memory is the system's.
            let memory = unsafe { System.realloc(pointer, layout, size) };
            if !memory.is_null() {
                return memory;
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.relocate(pointer, layout, size) }
    }
}

impl Reserve {
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

/// # Safety
/// As for `alloc`.
#[inline]
unsafe fn system(layout: Layout) -> *mut u8 {
    if fails() {
        return null_mut();
    }
    // SAFETY: by the contract.
    unsafe { System.alloc(layout) }
}

/// Whether memory is short. If the system has memory again, it is not.
#[inline]
pub(crate) fn is_short() -> bool {
    ALLOCATOR.is_short.load(Relaxed) && !recovers()
}

#[cold]
fn recovers() -> bool {
    let recovers = has(ENOUGH);
    if recovers {
        ALLOCATOR.is_short.store(false, Relaxed);
    }
    recovers
}

/// Whether the system has this many bytes at the moment, besides [`ENOUGH`] for the rest.
pub(crate) fn has(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.saturating_add(ENOUGH), 16) else {
        return false;
    };
    // SAFETY: the size is not zero, and the memory is freed with the same layout.
    unsafe {
        let memory = std::hint::black_box(system(layout));
        if !memory.is_null() {
            System.dealloc(memory, layout);
        }
        !memory.is_null()
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
        let two = reserve.take(layout(64, 64));
        assert_eq!(
            (reserve.offset(one), reserve.offset(two)),
            (Some(0), Some(64))
        );
        assert_eq!(two as usize % 64, 0);
        assert!(reserve.is_short.load(Relaxed));
        assert!(reserve.take(layout(SIZE - 127, 1)).is_null());
        let rest = reserve.take(layout(SIZE - 128, 1));
        assert_eq!(reserve.offset(rest), Some(128));
        assert_eq!(reserve.offset(reserve.start().wrapping_add(SIZE)), None);
        assert!(reserve.take(layout(1, 1)).is_null());
        // The last bytes are used again at once, others when no allocation is left.
        reserve.give_back(128, SIZE - 128);
        assert_eq!(reserve.offset(reserve.take(layout(8, 8))), Some(128));
        reserve.give_back(0, 3);
        assert_eq!(reserve.offset(reserve.take(layout(8, 8))), Some(136));
        for (offset, size) in [(64, 64), (128, 8), (136, 8)] {
            reserve.give_back(offset, size);
        }
        assert_eq!(reserve.state.load(Relaxed), 0);
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
            assert_eq!(reserve.state.load(Relaxed), 0);
            reserve.dealloc(outside, layout(9, 4));
        }
    }
}
