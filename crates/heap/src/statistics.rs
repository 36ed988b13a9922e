//! Totals of a heap.

use crate::geometry::{ARENA_SIZE, CLASSES, PAGE_SIZE};
use crate::heap::Heap;
use core::sync::atomic::Ordering::Relaxed;

/// Totals of a heap, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStatistics {
    /// Address space of the arenas.
    pub reserved: usize,
    /// Pages that hold blocks.
    pub in_pages: usize,
    /// Bytes of blocks in use, without blocks of the fallbacks.
    pub in_use: usize,
    /// Bytes of live blocks of the fallbacks that were allocated during a session: an estimate, which is what the
    /// samples of the live blocks stand for. Exact if every allocation is sampled. To count each block would cost a
    /// look-up in a table for each of them, because a block does not tell its size when it is freed.
    pub in_use_large: u64,
    /// Bytes allocated since the session began, or since the heap was made if there was no session: the sizes of
    /// blocks, and the requested sizes of the fallbacks' blocks.
    pub allocated: u64,
    /// The part of `allocated` that the fallbacks served.
    pub allocated_large: u64,
    /// Number of samples that the observer could not receive: there was no memory, or it was
    /// allocating itself.
    pub lost: u64,
    /// Whether the hugetlb pool was empty when a huge page was requested, so that ordinary pages are used.
    pub huge_page_pool_was_empty: bool,
}

impl Heap {
    /// The totals, without counting lists. Blocks on lists cannot be distinguished from blocks in use. So `in_use` is
    /// too high, and `allocated` too low, by what the lists have: for each size class typically less than 64 KiB, and
    /// never more than a list retains with its budget, 1.25 MiB. The cost is a pass over the classes.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[must_use]
    pub unsafe fn statistics(heap: *const Self) -> HeapStatistics {
        // SAFETY: by the caller.
        unsafe { &*Self::state(heap) }.totals(|_| None)
    }

    /// The bytes in use, of blocks and of the fallbacks' blocks, as in [`Heap::statistics`]. It costs a third of all
    /// totals.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[must_use]
    pub unsafe fn in_use(heap: *const Self) -> u64 {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        let blocks = heap
            .classes
            .iter()
            .map(|class| class.used * class.size as usize);
        blocks.sum::<usize>() as u64 + heap.large_in_use
    }

    /// The exact totals. Counts the lists, which takes a few microseconds.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[must_use]
    pub unsafe fn statistics_exact(heap: *const Self) -> HeapStatistics {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        heap.totals(|class| Some(heap.count(class)))
    }

    /// The number of blocks in use or on lists, without blocks of the fallbacks: as in [`Heap::statistics`], the lists are
    /// not counted.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[must_use]
    pub unsafe fn blocks(heap: *const Self) -> usize {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        heap.classes.iter().map(|class| class.used).sum()
    }

    /// The number of blocks in use, without blocks of the fallbacks. Exact; counts the lists.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    #[must_use]
    pub unsafe fn blocks_in_use(heap: *const Self) -> usize {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        (0..CLASSES)
            .map(|class| heap.classes[class].used - heap.count(class))
            .sum()
    }

    /// `on_list` returns the length of a class's list; `None` means the length when the class was last settled.
    fn totals(&self, on_list: impl Fn(usize) -> Option<usize>) -> HeapStatistics {
        let mut in_use = 0;
        let allocated_large = self.large_bytes.load(Relaxed);
        let mut allocated = allocated_large;
        for (index, class) in self.classes.iter().enumerate() {
            let mut blocks = class.used;
            let mut allocations = class.allocations;
            if let Some(on_list) = on_list(index) {
                blocks -= on_list;
                let pushed = class.budget + 1 - self.slots[index].budget;
                allocations += (class.listed + pushed - on_list) as u64;
            }
            in_use += blocks * class.size as usize;
            allocated += allocations * u64::from(class.size);
        }
        HeapStatistics {
            reserved: self.arenas.count * ARENA_SIZE,
            in_pages: self.arenas.pages_in_use * PAGE_SIZE,
            in_use,
            in_use_large: self.large_in_use,
            allocated,
            allocated_large,
            lost: self.lost,
            huge_page_pool_was_empty: self.arenas.pool_was_empty,
        }
    }
}
