//! A heap that is also called by threads that do not hold its lock.
//!
//! Before such calls are possible, the heap does not check for its lock: the fast path has no room for the check. Then
//! [`Heap::share`] moves the heap's state to another place, and leaves an empty state in the old place. The functions
//! and the context stay the same, because other code may have stored them anywhere. But from now on each call takes the
//! slow path: the empty state has no blocks on its lists, no arenas in its table, and no size class below its limit.
//! The slow path checks whether the caller holds the lock ([`HoldsLock`]). If so, the moved state serves the call;
//! otherwise the fallback does. No call writes to the empty state (except to [`Heap::site`], which no code reads
//! there).
//!
//! The calls of a shared heap cost about ten instructions more, and the checks.

use crate::config::{HeapConfig, HoldsLock};
use crate::functions::DomainFunctions;
use crate::geometry::{STATE_SIZE, TABLE_SIZE};
use crate::heap::Heap;
use crate::observer::BlockDomain;
use crate::os;
use core::ffi::c_void;
use core::sync::atomic::{Ordering, fence};

/// A shared heap and the check for its lock: the data in the empty state that refers to the moved
/// state.
#[derive(Clone, Copy)]
pub struct Shared {
    /// The address of the moved state.
    inner: *mut Heap,
    holds_lock: HoldsLock,
}

impl Heap {
    /// Makes the heap safe for calls without its lock, until the process ends. Returns false if there is no address
    /// space for it; then nothing has changed.
    ///
    /// The cost is an access to each page of the heap, and as much address space as the heap took when it was made.
    ///
    /// # Safety
    /// `heap` is a heap that no other code uses now, not even a function further up the stack. `holds_lock` may be
    /// called by any thread at any time. A fallback may be called by every thread that may call the heap.
    #[must_use]
    pub unsafe fn share(heap: *mut Self, holds_lock: HoldsLock) -> bool {
        // SAFETY: by the caller, no other code uses the heap. The new place has writable zeroes of the same size. The
        // old place of moved data is not used any more, and no part of the data points into itself, except for the
        // slots of pages.
        unsafe {
            if (*heap).shared.is_some() {
                return true;
            }
            let Some(base) = os::map(STATE_SIZE + TABLE_SIZE) else {
                return false;
            };
            os::advise_huge(base.as_ptr(), STATE_SIZE + TABLE_SIZE, false);
            let inner: *mut Self = base.as_ptr().cast();
            inner.write(heap.read());
            let moved = (&raw mut (*inner).slots)
                .addr()
                .wrapping_sub((&raw mut (*heap).slots).addr());
            (*inner).arenas.copy_table(
                Self::table(heap.cast()),
                Self::table(inner.cast()),
                |page| {
                    (*page).slot = (*page).slot.wrapping_byte_add(moved);
                },
            );
            let mut empty = Self::new(HeapConfig::default(), (*inner).fallbacks);
            empty.limits = [0; 2];
            empty.shared = Some(Shared { inner, holds_lock });
            heap.write(empty);
            // The last step: a thread that does not find a block in the old table reads the table
            // again (`Shared::is_foreign`).
            fence(Ordering::SeqCst);
            (*inner).arenas.clear_table(Self::table(heap.cast()));
            true
        }
    }

    /// The address of a heap's state: the heap's own address, or the place that it was moved to.
    ///
    /// # Safety
    /// `heap` is a heap.
    pub(crate) unsafe fn state(heap: *const Self) -> *mut Self {
        // SAFETY: by the caller; the field changes only while no other thread uses the heap.
        unsafe { (*heap).shared }.map_or(heap.cast_mut(), |shared| shared.inner)
    }
}

impl Shared {
    /// The address of the moved state.
    pub(crate) fn address(self) -> usize {
        self.inner.addr()
    }

    /// Serves calls for a heap with a check for its lock, whether the heap is shared or not.
    ///
    /// # Safety
    /// `heap` is a heap that is not being shared now, and `holds_lock` is as for [`Heap::share`].
    #[must_use]
    pub unsafe fn of(heap: *mut Heap, holds_lock: HoldsLock) -> Self {
        // SAFETY: by the caller.
        let inner = unsafe { Heap::state(heap) };
        Self { inner, holds_lock }
    }

    /// The functions that serve this caller, their context, and whether they are the heap's
    /// functions.
    fn route(self, domain: BlockDomain) -> (DomainFunctions, *mut c_void, bool) {
        // SAFETY: by the contract of `Heap::share`.
        if unsafe { (self.holds_lock)() } {
            return (DomainFunctions::of(domain), self.inner.cast(), true);
        }
        // SAFETY: the state was moved to `inner`; the fallbacks never change.
        let fallback = unsafe { (*self.inner).fallback(domain) };
        let functions = DomainFunctions {
            malloc: fallback.malloc,
            calloc: fallback.calloc,
            realloc: fallback.realloc,
            free: fallback.free,
        };
        (functions, fallback.context, false)
    }

    /// Whether a block does not belong to the heap. The holder of the lock may be sharing the heap at this moment:
    /// then the first lookup may have used the old table.
    unsafe fn is_foreign(heap: *mut c_void, block: *mut c_void) -> bool {
        // SAFETY: `heap` is a heap.
        unsafe {
            if Heap::owns(heap, block) {
                return false;
            }
            fence(Ordering::SeqCst);
            !Heap::owns(heap, block)
        }
    }

    /// Allocates.
    ///
    /// # Safety
    /// As for the function of this name in [`DomainFunctions`]; the caller need not hold the lock.
    pub unsafe fn malloc(self, size: usize, domain: BlockDomain) -> *mut c_void {
        let (functions, context, _) = self.route(domain);
        // SAFETY: by the caller.
        unsafe { (functions.malloc)(context, size) }
    }

    /// Allocates zeroed memory.
    ///
    /// # Safety
    /// As for [`Shared::malloc`].
    pub unsafe fn calloc(self, count: usize, size: usize, domain: BlockDomain) -> *mut c_void {
        let (functions, context, _) = self.route(domain);
        // SAFETY: by the caller.
        unsafe { (functions.calloc)(context, count, size) }
    }

    /// Resizes.
    ///
    /// # Safety
    /// As for [`Shared::malloc`]; the block is in use, or null.
    pub unsafe fn realloc(
        self,
        block: *mut c_void,
        size: usize,
        domain: BlockDomain,
    ) -> *mut c_void {
        let (functions, context, holds_lock) = self.route(domain);
        let heap: *mut c_void = self.inner.cast();
        // SAFETY: by the caller. A block of the heap is in use, so its size can be read from any thread.
        unsafe {
            if holds_lock || Self::is_foreign(heap, block) {
                return (functions.realloc)(context, block, size);
            }
            let new = (functions.malloc)(context, size);
            if !new.is_null() {
                let old_size = Heap::usable_size(heap, block);
                core::ptr::copy_nonoverlapping::<u8>(block.cast(), new.cast(), size.min(old_size));
                Heap::remote_free(heap, block);
            }
            new
        }
    }

    /// Frees.
    ///
    /// # Safety
    /// As for [`Shared::realloc`].
    pub unsafe fn free(self, block: *mut c_void, domain: BlockDomain) {
        let (functions, context, holds_lock) = self.route(domain);
        let heap: *mut c_void = self.inner.cast();
        // SAFETY: by the caller.
        unsafe {
            if holds_lock || Self::is_foreign(heap, block) {
                (functions.free)(context, block);
            } else {
                Heap::remote_free(heap, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Fallback;
    use std::cell::Cell;
    use std::collections::HashSet;

    thread_local! {
        static HOLDS: Cell<bool> = const { Cell::new(true) };
    }

    unsafe extern "C" fn holds() -> bool {
        HOLDS.get()
    }

    fn fill(block: *mut c_void, size: usize, byte: u8) {
        // SAFETY: the block has this many bytes.
        unsafe { block.cast::<u8>().write_bytes(byte, size) };
    }

    fn is_full(block: *mut c_void, size: usize, byte: u8) -> bool {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(block.cast::<u8>(), size) }
            .iter()
            .all(|&found| found == byte)
    }

    #[test]
    fn the_functions_from_before_ask_for_the_lock() {
        let heap = Heap::create(HeapConfig::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        let context: *mut c_void = heap.cast();
        let functions = DomainFunctions::of(BlockDomain::Object);
        let sizes = || (0..4000usize).map(|at| at * 37 % 2500);
        // SAFETY: no other code uses the heap, and each block is freed once.
        unsafe {
            let before: Vec<_> = sizes()
                .map(|size| {
                    let block = (functions.malloc)(context, size);
                    fill(block, size, size as u8);
                    (block, size)
                })
                .collect();
            let in_use = Heap::statistics_exact(heap);
            assert!(Heap::share(heap, holds));
            assert!(Heap::share(heap, holds), "it stays shared");
            assert_eq!(Heap::statistics_exact(heap), in_use);

            for (at, size) in sizes().enumerate() {
                HOLDS.set(at % 3 == 0);
                let block = match at % 4 {
                    0 => (functions.calloc)(context, 1, size),
                    1 => (functions.realloc)(context, core::ptr::null_mut(), size),
                    _ => (functions.malloc)(context, size),
                };
                assert!(!block.is_null());
                assert_eq!(
                    Heap::owns(context, block),
                    HOLDS.get() && size <= (*Heap::state(heap)).limits[0],
                    "{size}"
                );
                fill(block, size, 0xee);
                // A block that was resized with or without the lock, and is freed with or without
                // it.
                HOLDS.set(if Heap::owns(context, block) {
                    at % 2 == 0
                } else {
                    HOLDS.get()
                });
                let block = (functions.realloc)(context, block, size + 600);
                assert!(is_full(block, size, 0xee));
                (functions.free)(context, block);
            }
            for (at, (block, size)) in before.into_iter().enumerate() {
                assert!(is_full(block, size, size as u8));
                HOLDS.set(at % 2 == 0);
                (functions.free)(context, block);
            }
            // Blocks that were freed without the lock are freed on the next slow path of each
            // class.
            HOLDS.set(true);
            let again: HashSet<_> = sizes()
                .map(|size| (functions.malloc)(context, size))
                .collect();
            assert_eq!(again.len(), 4000);
            for block in again {
                (functions.free)(context, block);
            }
            assert_eq!(Heap::blocks_in_use(heap), 0);
        }
    }

    #[test]
    fn threads_without_the_lock_leave_the_heap_alone() {
        let heap = Heap::create(HeapConfig::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        let functions = DomainFunctions::of(BlockDomain::Memory);
        let work = move |context: usize, holds: bool| {
            HOLDS.set(holds);
            let context = context as *mut c_void;
            for round in 0..200u8 {
                // SAFETY: only one thread holds the lock.
                unsafe {
                    let blocks: Vec<_> = (1..300usize)
                        .map(|size| {
                            let block = (functions.malloc)(context, size);
                            fill(block, size, round);
                            (block, size)
                        })
                        .collect();
                    for (block, size) in blocks {
                        assert!(is_full(block, size, round));
                        (functions.free)(context, block);
                    }
                }
            }
        };
        // SAFETY: no other thread uses the heap yet.
        assert!(unsafe { Heap::share(heap, holds) });
        let context = heap as usize;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || work(context, false));
            }
            work(context, true);
        });
        // SAFETY: no other thread uses the heap any more.
        assert_eq!(unsafe { Heap::blocks_in_use(heap) }, 0);
    }
}
