//! The length of a class's list: it is filled when it is empty, and shortened when the budget of `free` is spent.
//!
//! A *refill* gives an empty list at most half of k blocks (k and the invariants D1 and D2: [`crate::list`]). When
//! the budget is spent, the list is counted. The blocks that a class does not retain return to their pages, which may
//! become empty. Then `free` gets a new budget.
//!
//! Most programs free about as many blocks as they allocate, and each block on a list costs a memory access when the
//! budget is spent. So close to a sample point only an eighth of k stays on the list, and the rest of k is the
//! budget. The part cut off for this is *set aside*, and is on the list again as soon as the sample point has been
//! passed: no page is asked. Until then the next refill is small, and each later one is twice as large.

use crate::arena::ArenaTable;
use crate::heap::Heap;
use crate::page::Block;
use crate::wave::MAX_BYTES;
use core::ptr::null_mut;

impl Heap {
    /// Fills the list of a settled class, which is empty although k is not 0. Returns false if there is no
    /// memory.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn refill(&mut self, class: usize, table: ArenaTable) -> bool {
        debug_assert!(self.classes[class].until_sample() > 0 && self.slots[class].head.is_null());
        let blocks = self.classes[class].next_refill();
        let (list, count) = if self.classes[class].set_aside > 0 {
            self.take_aside(class, blocks)
        } else {
            let (list, count) = self.take(class, blocks, table);
            self.classes[class].wave.take(count);
            (list, count)
        };
        if count == 0 {
            return false;
        }
        self.slots[class].head = list;
        self.classes[class].listed = count;
        self.renew_budget(class);
        true
    }

    /// Takes the blocks that were set aside: all of them, if half of k allows it, else the first `limit`.
    fn take_aside(&mut self, class: usize, limit: usize) -> (*mut Block, usize) {
        let state = &mut self.classes[class];
        let (list, all) = (state.aside, state.set_aside);
        let mut taken = all;
        state.aside = null_mut();
        if all > limit && all > state.until_sample() / 2 {
            taken = limit;
            // SAFETY: the list contains `all` free blocks, which link to each other.
            state.aside =
                unsafe { core::mem::replace(&mut (*last_of(list, taken)).next, null_mut()) };
        }
        state.set_aside = all - taken;
        state.used += taken;
        (list, taken)
    }

    /// Sets blocks aside that were cut off the list of a class, or returns them to their pages if there are too many.
    fn set_aside(&mut self, class: usize, list: *mut Block, count: usize, table: ArenaTable) {
        let state = &mut self.classes[class];
        if (state.set_aside + count) * state.size as usize > MAX_BYTES {
            self.return_list(list, table);
            return;
        }
        if state.set_aside > 0 {
            // SAFETY: the list contains `count` free blocks, which link to each other.
            unsafe { (*last_of(list, count)).next = state.aside };
        }
        state.aside = list;
        state.set_aside += count;
        state.used -= count;
    }

    /// Returns the blocks that were set aside to their pages.
    pub fn return_aside(&mut self, class: usize, table: ArenaTable) {
        let (list, _) = self.take_aside(class, usize::MAX);
        self.return_list(list, table);
    }

    /// Settles a class, shortens its list to the blocks that it retains, and renews its budget.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn rebalance(&mut self, class: usize, table: ArenaTable) {
        let (kept, rest) = self.split(class, self.classes[class].max_retained());
        let returned = self.return_list(rest, table);
        self.settle(class, kept + returned);
        self.classes[class].listed = kept;
        self.classes[class].adapt_budget(returned);
        if returned > 0 {
            self.return_aside(class, table);
        }
        self.trim(class, table);
    }

    /// Shortens the list to an eighth of k, so that D2 leaves room for pushes, and renews the budget. The class is
    /// settled; its countdown may have been changed after that.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn trim(&mut self, class: usize, table: ArenaTable) {
        let keep = self.classes[class].until_sample() / 8;
        let listed = self.classes[class].listed;
        if listed > keep {
            let (_, rest) = self.split(class, keep);
            self.set_aside(class, rest, listed - keep, table);
            self.classes[class].listed = keep;
            self.classes[class].restart_refills();
        }
        self.renew_budget(class);
    }
}

/// The block at position `count` of a list.
///
/// # Safety
/// The list has at least `count` free blocks, which link to each other, and `count` is not 0.
unsafe fn last_of(list: *mut Block, count: usize) -> *mut Block {
    let mut last = list;
    for _ in 1..count {
        // SAFETY: by the caller.
        last = unsafe { (*last).next };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Class, class_of};
    use crate::config::HeapConfig;
    use crate::observer::Fallback;
    use crate::{BlockDomain, DomainFunctions};
    use core::ffi::c_void;
    use core::ptr::null_mut;
    use nthbyte_sampling::{Countdown, Distances, Period, SamplePoints};

    const SIZE: u32 = 64;

    /// A new heap with its table, and a class of it.
    fn heap() -> (&'static mut Heap, ArenaTable, usize) {
        let heap = Heap::create(HeapConfig::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        // SAFETY: a heap of this test alone, which is never removed.
        let heap = unsafe { (&mut *heap, Heap::table(heap.cast())) };
        (heap.0, heap.1, class_of(SIZE as usize))
    }

    #[test]
    fn a_list_that_was_too_long_makes_the_next_budgets_small() {
        let (heap, table, class) = heap();
        let first = Class::new(SIZE).budget_bytes;
        assert!(heap.refill(class, table));
        heap.rebalance(class, table);
        assert_eq!(heap.classes[class].budget_bytes, 2 * first);
        // The program takes all of these and some more, and frees those: a page has so many then that the next list is
        // longer than what a class retains.
        heap.slots[class].head = null_mut();
        let lists = [(); 3].map(|()| heap.take(class, 64, table).0);
        for list in lists {
            heap.return_list(list, table);
        }
        heap.classes[class].refill_blocks = 4096;
        assert!(heap.refill(class, table));
        let retained = heap.classes[class].max_retained();
        assert!(heap.classes[class].listed > retained);
        heap.rebalance(class, table);
        assert_eq!(heap.classes[class].listed, retained);
        assert_eq!(heap.classes[class].budget_bytes, first);
    }

    /// A list of a thousand objects that is filled and dropped again and again.
    #[test]
    fn waves_do_not_return_blocks_forever() {
        let (heap, _, class) = heap();
        let functions = DomainFunctions::of(BlockDomain::Object);
        let context: *mut c_void = (&raw mut *heap).cast();
        let mut used = Vec::new();
        for _ in 0..20 {
            // SAFETY: no other code uses the heap, and each block is freed once.
            unsafe {
                let blocks = [(); 1000].map(|()| (functions.malloc)(context, SIZE as usize));
                used.push((*context.cast::<Heap>()).classes[class].used);
                for block in blocks {
                    (functions.free)(context, block);
                }
                used.push((*context.cast::<Heap>()).classes[class].used);
            }
        }
        // Once the wave is known, the list keeps nearly all of it.
        assert!(used[10..].iter().all(|now| *now >= 900), "{used:?}");
    }

    #[test]
    fn refills_become_small_when_blocks_must_be_returned_near_a_sample_point() {
        let (heap, table, class) = heap();
        let period = Period::new(100 * u64::from(SIZE)).expect("a period");
        let mut points = SamplePoints::new(period, Distances::Fixed, 1);
        heap.classes[class].countdown = Countdown::new(&mut points);
        let keep = heap.classes[class].until_sample() / 8;
        assert!(keep > 1);
        for (listed, next) in [(keep, 2 * keep), (keep + 1, Class::new(SIZE).refill_blocks)] {
            heap.slots[class].head = null_mut();
            heap.classes[class].refill_blocks = listed;
            assert!(heap.refill(class, table));
            assert_eq!(heap.classes[class].listed, listed);
            heap.trim(class, table);
            assert_eq!(heap.classes[class].listed, keep);
            let next_refill = heap.classes[class].refill_blocks;
            assert_eq!(next_refill, next);
        }
    }

    #[test]
    fn what_is_cut_off_near_a_sample_point_comes_back_after_it() {
        let (heap, table, class) = heap();
        let near = Period::new(100 * u64::from(SIZE)).expect("a period");
        let mut points = SamplePoints::new(near, Distances::Fixed, 1);
        heap.classes[class].refill_blocks = 4 * Class::new(SIZE).refill_blocks;
        assert!(heap.refill(class, table));
        let listed = heap.classes[class].listed;
        heap.classes[class].countdown = Countdown::new(&mut points);
        let keep = heap.classes[class].until_sample() / 8;
        heap.trim(class, table);
        assert_eq!(heap.classes[class].listed, keep);
        assert_eq!(heap.classes[class].set_aside, listed - keep);
        let mut free = 0;
        // SAFETY: a heap of this test alone.
        unsafe {
            Heap::listed(heap, |_| free += 1);
            assert_eq!(free, listed);
            assert_eq!(Heap::blocks_in_use(heap), 0);
        }
        // The program takes the blocks on the list, and the sample.
        heap.slots[class].head = null_mut();
        heap.settle(class, 0);
        heap.classes[class].countdown = Countdown::NEVER;
        assert_eq!(heap.classes[class].used, keep);
        assert!(heap.refill(class, table));
        assert_eq!(heap.classes[class].listed, listed - keep);
        assert_eq!(heap.count(class), listed - keep);
        assert_eq!(heap.classes[class].set_aside, 0);
        assert_eq!(heap.classes[class].used, listed);
    }
}
