//! What a heap knows of itself.

use crate::arena::ARENA_SIZE;
use crate::class::CLASSES;
use crate::heap::Heap;
use crate::page::PAGE_SIZE;

/// Totals of a heap, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Address space taken from the system for arenas.
    pub reserved: usize,
    /// Pages that hold blocks.
    pub in_pages: usize,
    /// Blocks in use. Without those that the fallbacks made.
    pub in_use: usize,
    /// Allocated since sampling was last switched on, or else since the heap was made: blocks by their
    /// size, and what the fallbacks served as it was asked for.
    pub allocated: u64,
    /// Of these, what the fallbacks served.
    pub allocated_large: u64,
    /// How many samples could not be reported, for want of memory or because an observer allocated.
    pub lost: u64,
    /// Whether huge pages were wanted from the reserved pool and it had none left, so that ordinary
    /// pages serve.
    pub huge_page_pool_was_empty: bool,
}

impl Heap {
    /// The totals, in which blocks that wait on lists are not told from blocks in use: `in_use` is too
    /// high, and `allocated` too low, by at most some 64 KiB a size class, and typically far less. Costs
    /// a pass over the classes.
    ///
    /// # Safety
    /// `heap` is a heap that nobody else is using now.
    #[must_use]
    pub unsafe fn statistics(heap: *const Self) -> Statistics {
        // SAFETY: by the caller.
        unsafe { &*Self::state(heap) }.totals(|_| None)
    }

    /// The exact totals. Counts the lists, which takes some microseconds.
    ///
    /// # Safety
    /// `heap` is a heap that nobody else is using now.
    #[must_use]
    pub unsafe fn statistics_exact(heap: *const Self) -> Statistics {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        heap.totals(|class| Some(heap.count(class)))
    }

    /// How many blocks are in use, without those of the fallbacks. Exact; counts the lists.
    ///
    /// # Safety
    /// `heap` is a heap that nobody else is using now.
    #[must_use]
    pub unsafe fn blocks_in_use(heap: *const Self) -> usize {
        // SAFETY: by the caller.
        let heap = unsafe { &*Self::state(heap) };
        (0..CLASSES)
            .map(|class| heap.classes[class].used - heap.count(class))
            .sum()
    }

    /// `on_list` is the length of a class's list, or `None` to take it as it was when it was dealt.
    fn totals(&self, on_list: impl Fn(usize) -> Option<usize>) -> Statistics {
        let mut in_use = 0;
        let mut allocated = self.large_bytes;
        for (index, class) in self.classes.iter().enumerate() {
            let mut blocks = class.used;
            let mut allocations = class.allocations;
            if let Some(on_list) = on_list(index) {
                blocks -= on_list;
                let pushed = class.granted + 1 - self.slots[index].allowance;
                allocations += (class.handed + pushed - on_list) as u64;
            }
            in_use += blocks * class.size as usize;
            allocated += allocations * u64::from(class.size);
        }
        Statistics {
            reserved: self.arenas.count * ARENA_SIZE,
            in_pages: self.arenas.pages_in_use * PAGE_SIZE,
            in_use,
            allocated,
            allocated_large: self.large_bytes,
            lost: self.lost,
            huge_page_pool_was_empty: self.arenas.pool_was_empty,
        }
    }
}
