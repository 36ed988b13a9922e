//! The list of a class, cut before the sample point.
//!
//! The fast path pops from a class's list and pushes to it, and counts only the pushes. This is sufficient. If a list
//! had `listed` blocks at some moment, `free` has pushed `pushed` blocks since then, and the list has `left` blocks
//! now, then `listed + pushed - left` blocks were allocated. So:
//!
//! - **D1** (settled): when a list is empty, or was counted, the number of allocations since it was last settled is
//!   known exactly, and the class's countdown is advanced by it.
//! - **D2** (cut): `listed + budget ≤ k`. Here `budget` is the number of pushes before `free` takes the slow path, and
//!   k the number of allocations before the one that covers the next sample point. So no allocation on the fast path
//!   covers a sample point, and the allocation that covers it finds the list empty.

use crate::heap::Heap;
use crate::page::Block;
use core::ptr::null_mut;

impl Heap {
    /// D1: advances the class's countdown by the allocations since it was last settled. The list has
    /// `on_list` blocks now. D2 stays true.
    pub fn settle(&mut self, class: usize, on_list: usize) {
        let left = self.slots[class].budget - 1;
        let class = &mut self.classes[class];
        let allocated = (class.listed + class.budget - left - on_list) as u64;
        class.allocations += allocated;
        class.countdown.pass(allocated * u64::from(class.size));
        class.listed = on_list;
        class.budget = left;
    }

    /// D2: sets the budget of a settled class.
    pub fn renew_budget(&mut self, class: usize) {
        let slot = &mut self.slots[class];
        let class = &mut self.classes[class];
        class.budget = (class.until_sample() - class.listed).min(class.max_budget());
        slot.budget = class.budget + 1;
    }

    /// Cuts a class's list after at most `keep` blocks. Returns the number of blocks that it has
    /// now, and the blocks after them.
    pub fn split(&mut self, class: usize, keep: usize) -> (usize, *mut Block) {
        let head = self.slots[class].head;
        if keep == 0 || head.is_null() {
            self.slots[class].head = null_mut();
            return (0, head);
        }
        let mut kept = 1;
        let mut last = head;
        // SAFETY: the list contains free blocks, which link to each other.
        unsafe {
            while kept < keep && !(*last).next.is_null() {
                last = (*last).next;
                kept += 1;
            }
            (kept, core::mem::replace(&mut (*last).next, null_mut()))
        }
    }

    /// The length of a class's list. The cost is a pass over the list.
    pub fn count(&self, class: usize) -> usize {
        let mut count = 0;
        let mut block = self.slots[class].head;
        while !block.is_null() {
            count += 1;
            // SAFETY: the list contains free blocks, which link to each other.
            block = unsafe { (*block).next };
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;

    use crate::{BlockDomain, DomainFunctions, Fallback, Heap, HeapConfig};

    /// A class without a budget would be correct, but each `free` would take the slow path.
    #[test]
    fn free_has_a_budget() {
        let heap = Heap::create(HeapConfig::default(), [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        let (context, functions): (*mut c_void, _) =
            (heap.cast(), DomainFunctions::of(BlockDomain::Object));
        // SAFETY: no other code uses the heap, and each block is freed once.
        unsafe {
            let block = (functions.malloc)(context, 64);
            let before = (*heap).slots[4].budget;
            assert!(before > 100, "{before}");
            (functions.free)(context, block);
            assert_eq!((*heap).slots[4].budget, before - 1);
        }
    }
}
