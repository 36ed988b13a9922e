//! A heap that is also called by those who do not hold its lock.
//!
//! Until somebody else may call it, the heap asks nothing: the fast path has no room for it. Then
//! [`Heap::share`] moves the heap's state to another place, and leaves an empty one where it was. The functions and the
//! context that everybody has, and may have stored anywhere, stay the same, but from now on each call of them takes the
//! slow path: the empty state has no blocks on its lists, no arenas in its table, and no size class below its limit. There the
//! caller is asked for the lock ([`HoldsLock`]); who holds it is served by the state that was moved, who does not is
//! served by the fallback. No call writes to the empty state (but for [`Heap::caller`], which nobody reads there).
//!
//! It costs the calls of a shared heap about ten instructions more, and the two questions.

use crate::config::Config;
use crate::functions::Functions;
use crate::geometry::{STATE_SIZE, TABLE_SIZE};
use crate::heap::Heap;
use crate::observer::Domain;
use crate::os;
use core::ffi::c_void;
use core::sync::atomic::{Ordering, fence};

/// Whether the caller holds the heap's lock. Called by any thread, at each call of a shared heap.
pub type HoldsLock = unsafe extern "C" fn() -> bool;

/// A heap and the question for its lock: what an empty state knows of the heap that was there.
#[derive(Clone, Copy)]
pub struct Shared {
    /// Where its state is now.
    inner: *mut Heap,
    holds_lock: HoldsLock,
}

impl Heap {
    /// Makes the heap safe to be called by those who do not hold its lock, for ever. Whether it is; if not, there
    /// is no address space for it, and nothing has changed.
    ///
    /// Costs a look at each page of the heap, and as much address space as the heap took when it was made.
    ///
    /// # Safety
    /// `heap` is a heap that nobody else is using now, not even a function further up the stack. `holds_lock` may be called by any
    /// thread at any time. A fallback may be called by everybody who may call the heap.
    #[must_use]
    pub unsafe fn share(heap: *mut Self, holds_lock: HoldsLock) -> bool {
        // SAFETY: by the caller nobody uses the heap. The new place is writable zeroes of the same size; what has moved is not
        // used in its old place, and no part of it points into itself, but for the slots of pages.
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
            let mut empty = Self::new(Config::default(), (*inner).fallbacks);
            empty.limit = 0;
            empty.shared = Some(Shared { inner, holds_lock });
            heap.write(empty);
            // Last: who does not find a block in the old table looks again (`Shared::is_foreign`).
            fence(Ordering::SeqCst);
            (*inner).arenas.clear_table(Self::table(heap.cast()));
            true
        }
    }

    /// Where the state of a heap is: there, or where it was moved to.
    ///
    /// # Safety
    /// `heap` is a heap.
    pub(crate) unsafe fn state(heap: *const Self) -> *mut Self {
        // SAFETY: by the caller; the field changes only while nobody else uses the heap.
        unsafe { (*heap).shared }.map_or(heap.cast_mut(), |shared| shared.inner)
    }
}

impl Shared {
    /// Serves calls for a heap by asking for its lock, whether it is shared or not.
    ///
    /// # Safety
    /// `heap` is a heap that is not being shared at this moment, and `holds_lock` as for [`Heap::share`].
    #[must_use]
    pub unsafe fn of(heap: *mut Heap, holds_lock: HoldsLock) -> Self {
        // SAFETY: by the caller.
        let inner = unsafe { Heap::state(heap) };
        Self { inner, holds_lock }
    }

    /// The functions that serve this caller, their context, and whether these are the heap's.
    fn route(self, domain: Domain) -> (Functions, *mut c_void, bool) {
        // SAFETY: by the contract of `Heap::share`.
        if unsafe { (self.holds_lock)() } {
            return (Functions::of(domain), self.inner.cast(), true);
        }
        // SAFETY: the state was moved there; the fallbacks never change.
        let fallback = unsafe { (*self.inner).fallback(domain) };
        let functions = Functions {
            malloc: fallback.malloc,
            calloc: fallback.calloc,
            realloc: fallback.realloc,
            free: fallback.free,
        };
        (functions, fallback.context, false)
    }

    /// Whether a block is not the heap's. The heap may be shared at this moment by who holds its lock: then the first
    /// look may have been at the old table.
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
    /// As for the function of this name in [`Functions`], of whoever holds the lock or does not.
    pub unsafe fn malloc(self, size: usize, domain: Domain) -> *mut c_void {
        let (functions, context, _) = self.route(domain);
        // SAFETY: by the caller.
        unsafe { (functions.malloc)(context, size) }
    }

    /// Allocates zeroed memory.
    ///
    /// # Safety
    /// As for [`Shared::malloc`].
    pub unsafe fn calloc(self, count: usize, size: usize, domain: Domain) -> *mut c_void {
        let (functions, context, _) = self.route(domain);
        // SAFETY: by the caller.
        unsafe { (functions.calloc)(context, count, size) }
    }

    /// Resizes.
    ///
    /// # Safety
    /// As for [`Shared::malloc`]; the block is in use, or null.
    pub unsafe fn realloc(self, block: *mut c_void, size: usize, domain: Domain) -> *mut c_void {
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
    pub unsafe fn free(self, block: *mut c_void, domain: Domain) {
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
        // SAFETY: the block has so many bytes.
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
        let heap = Heap::create(Config::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        let context: *mut c_void = heap.cast();
        let functions = Functions::of(Domain::Object);
        let sizes = || (0..4000usize).map(|at| at * 37 % 2500);
        // SAFETY: this is the one user of the heap, and each block is freed once.
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
                    HOLDS.get() && size <= (*Heap::state(heap)).limit,
                    "{size}"
                );
                fill(block, size, 0xee);
                // Grown, by either, and freed by either.
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
            // What was left by those without the lock is freed on the next slow path of each class.
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
        let heap = Heap::create(Config::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        let functions = Functions::of(Domain::Memory);
        let work = move |context: usize, holds: bool| {
            HOLDS.set(holds);
            let context = context as *mut c_void;
            for round in 0..200u8 {
                // SAFETY: one thread alone holds the lock.
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
        // SAFETY: nobody else uses the heap yet.
        assert!(unsafe { Heap::share(heap, holds) });
        let context = heap as usize;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || work(context, false));
            }
            work(context, true);
        });
        // SAFETY: nobody else uses the heap any more.
        assert_eq!(unsafe { Heap::blocks_in_use(heap) }, 0);
    }
}
