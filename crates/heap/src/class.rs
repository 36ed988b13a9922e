//! Size classes: the class of a request, and the slow path's state of each class.

use crate::geometry::{
    ALIGNMENT, BLOCK_SIZES, CLASSES, GROUP_BLOCK_SIZES, MEDIUM_LIMIT, SMALL_CLASSES,
};
use crate::page::{Block, Page};
use crate::wave::Wave;
use core::ptr::null_mut;
use nthbyte_sampling::Countdown;

/// A *budget* is the number of blocks that `free` may push before it takes the slow path. Far from a sample point
/// the first budget is twice what the list retains. If the list is not too long when the budget is spent, the next
/// budget is twice as large, up to a maximum; otherwise it is the first one again. The maximum is four times what the
/// list retains, so that a long list, which may have left the caches, is counted once in many frees; or this, if that is
/// more.
const MAX_BUDGET_BYTES: usize = 128 << 10;
const MAX_BUDGET_OF_RETAINED: usize = 4;
/// A budget far from a sample point has at least this many blocks, whatever their size.
const MIN_BUDGET_BLOCKS: usize = 32;
/// The smallest number of free blocks that a list retains when its budget is spent ([`Wave`] has their size in bytes).
const MIN_RETAINED_BLOCKS: usize = 16;
/// The first refill is at most this many blocks, and each later one at most twice as many as the previous one. The
/// doubling starts again when a list was too long for a sample point that was near. (docs/fast-path.md explains all of
/// these constants.)
const FIRST_REFILL_BLOCKS: usize = 16;

/// The slow path's state of a size class.
pub struct Class {
    /// The size of a block, in bytes.
    pub size: u32,
    /// Number of blocks on the list when the class was last settled (D1 in [`crate::list`]).
    pub listed: usize,
    /// Number of blocks that `free` was allowed to push from that moment on.
    pub budget: usize,
    /// The budget, in bytes, if no sample point is near.
    pub budget_bytes: usize,
    /// What the list retains.
    pub wave: Wave,
    /// Free blocks that were cut off the list because a sample point was near, and their number. A refill takes them first.
    pub aside: *mut Block,
    pub set_aside: usize,
    /// The next refill has at most this many blocks.
    pub refill_blocks: usize,
    /// The distance to the next sample point, in bytes of this class.
    pub countdown: Countdown,
    /// Number of allocations of this class until it was last settled.
    pub allocations: u64,
    /// Number of blocks that are in use or on the class's list.
    pub used: usize,
    /// Pages with free blocks; the page to which a block was returned last is first.
    pub queue: *mut Page,
    /// The page from which new blocks are carved, or null.
    pub fresh: *mut Page,
}

impl Class {
    /// A class for blocks of `size` bytes, without blocks.
    pub const fn new(size: u32) -> Self {
        let wave = Wave::new();
        Self {
            size,
            listed: 0,
            budget: 0,
            budget_bytes: 2 * wave.retained_bytes(),
            wave,
            aside: null_mut(),
            set_aside: 0,
            refill_blocks: FIRST_REFILL_BLOCKS,
            countdown: Countdown::NEVER,
            allocations: 0,
            used: 0,
            queue: null_mut(),
            fresh: null_mut(),
        }
    }

    /// k: the number of allocations before the one that covers the next sample point.
    pub fn until_sample(&self) -> usize {
        usize::try_from(
            self.countdown
                .allocations_until_sample(u64::from(self.size)),
        )
        .unwrap_or(usize::MAX)
    }

    /// The budget in blocks, if no sample point is near.
    pub fn max_budget(&self) -> usize {
        (self.budget_bytes / self.size as usize).max(MIN_BUDGET_BLOCKS)
    }

    /// Number of blocks that the list retains when its budget is spent, if no sample point is near.
    pub fn max_retained(&self) -> usize {
        (self.wave.retained_bytes() / self.size as usize).max(MIN_RETAINED_BLOCKS)
    }

    /// Sets the size of later budgets, and what the list retains, when a budget is spent. The list was too long by
    /// `returned` blocks, which have returned to their pages.
    pub fn adapt_budget(&mut self, returned: usize) {
        if returned > 0 {
            self.wave.give_back(returned, self.size as usize);
            self.budget_bytes = 0;
        }
        let retained = self.wave.retained_bytes();
        let most = MAX_BUDGET_BYTES.max(MAX_BUDGET_OF_RETAINED * retained);
        self.budget_bytes = (self.budget_bytes * 2).clamp(2 * retained, most);
    }

    /// The size of the next refill, in blocks; at least 1. The refill after it may be twice as
    /// large.
    pub fn next_refill(&mut self) -> usize {
        let blocks = (self.until_sample() / 2).clamp(1, self.refill_blocks);
        self.refill_blocks = self.refill_blocks.saturating_mul(2);
        blocks
    }

    /// Makes refills small again.
    pub const fn restart_refills(&mut self) {
        self.refill_blocks = FIRST_REFILL_BLOCKS;
    }
}

/// The class of a medium request by `(size + 15) / 16 - SMALL_CLASSES`.
static MEDIUM_CLASS: [u8; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1] = medium_classes();

/// The group of each class.
pub static GROUP_OF: [u8; CLASSES] = groups();

/// The class of a request of `size` bytes, at most [`MEDIUM_LIMIT`].
pub const fn class_of(size: usize) -> usize {
    let steps = size.div_ceil(ALIGNMENT);
    if steps < SMALL_CLASSES {
        steps
    } else {
        MEDIUM_CLASS[steps - SMALL_CLASSES] as usize
    }
}

/// The size in bytes of the block that serves a request of `size` bytes.
///
/// # Panics
/// If `size` is above [`MEDIUM_LIMIT`].
#[must_use]
pub fn block_size(size: usize) -> usize {
    BLOCK_SIZES[class_of(size)] as usize
}

#[allow(clippy::cast_possible_truncation)] // there are fewer than 256 groups
const fn groups() -> [u8; CLASSES] {
    let mut groups = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let mut group = groups[class - 1];
        while BLOCK_SIZES[class] as usize > GROUP_BLOCK_SIZES[group as usize] {
            group += 1;
        }
        groups[class] = group;
        class += 1;
    }
    groups
}

#[allow(clippy::cast_possible_truncation)] // there are fewer than 256 classes
const fn medium_classes() -> [u8; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1] {
    let mut classes = [0; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1];
    let mut class = SMALL_CLASSES;
    let mut at = 0;
    while at < classes.len() {
        if (at + SMALL_CLASSES) * ALIGNMENT > BLOCK_SIZES[class] as usize {
            class += 1;
        }
        classes[at] = class as u8;
        at += 1;
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{MEDIUM_BLOCKS, PAGE_HEADER, PAGE_SIZE, SMALL_LIMIT};

    #[test]
    fn each_request_has_the_smallest_class_that_holds_it() {
        for size in 0..=MEDIUM_LIMIT {
            let class = class_of(size);
            assert!(BLOCK_SIZES[class] as usize >= size);
            assert_eq!(BLOCK_SIZES[class] as usize % ALIGNMENT, 0);
            if class > 1 {
                assert!((BLOCK_SIZES[class - 1] as usize) < size, "{size}");
            }
        }
    }

    #[test]
    fn budgets_double_until_a_list_is_too_long() {
        let mut class = Class::new(64);
        for blocks in [256, 512, 1024, 2048, 2048] {
            assert_eq!(class.max_budget(), blocks);
            class.adapt_budget(0);
        }
        class.adapt_budget(1);
        assert_eq!(class.max_budget(), 256);
        // Large blocks.
        assert_eq!(Class::new(2032).max_budget(), MIN_BUDGET_BLOCKS);
    }

    /// However many blocks a list retains, it is counted at most once in four times as many frees, if it is never too long.
    #[test]
    fn a_long_list_is_counted_once_in_four_times_as_many_frees() {
        const SIZE: usize = 64;
        for retained in [64, 100, 256_usize] {
            let mut class = Class::new(SIZE as u32);
            let blocks = (retained << 10) / SIZE;
            // A wave, which returns in vain once.
            let beyond = blocks - class.max_retained();
            class.adapt_budget(beyond);
            class.wave.take(beyond);
            class.adapt_budget(beyond);
            assert_eq!(class.max_retained(), blocks);
            assert_eq!(class.max_budget(), 2 * blocks);
            for _ in 0..3 {
                class.adapt_budget(0);
            }
            assert_eq!(class.max_budget(), (4 * blocks).max(2048));
        }
    }

    #[test]
    fn refills_double_far_from_a_sample_point() {
        let mut class = Class::new(64);
        for _ in 0..2 {
            for blocks in [16, 32, 64, 128] {
                assert_eq!(class.next_refill(), blocks);
            }
            class.restart_refills();
        }
    }

    #[test]
    fn medium_classes_fill_a_page() {
        let page = PAGE_SIZE - PAGE_HEADER;
        for (class, blocks) in (SMALL_CLASSES..).zip(MEDIUM_BLOCKS) {
            let size = BLOCK_SIZES[class] as usize;
            assert!(
                blocks * size <= page && blocks * (size + ALIGNMENT) > page,
                "{size}"
            );
        }
    }

    #[test]
    fn small_requests_are_rounded_up_to_the_alignment() {
        for size in 1..=SMALL_LIMIT {
            assert_eq!(block_size(size), size.next_multiple_of(ALIGNMENT));
        }
        assert_eq!(block_size(0), ALIGNMENT);
    }

    /// Waste is at most a quarter, as in the classes of other allocators; on average it is much
    /// less.
    #[test]
    fn medium_classes_waste_little() {
        for size in SMALL_LIMIT + 1..=MEDIUM_LIMIT {
            assert!(
                block_size(size) * 4 <= size * 5,
                "{size} → {}",
                block_size(size)
            );
        }
    }
}
