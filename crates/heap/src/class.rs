//! Size classes.
//!
//! Classes 0 to 32 have blocks of 16, 16, 32, 48, …, 512 bytes: class `(size + 15) / 16`, which the
//! fast path can compute. (Class 0 is for requests of no bytes at all, so that they need no branch.)
//! The classes above divide a page into a whole number of blocks with little left over, and are found by a table.

use crate::page::{PAGE_HEADER, PAGE_SIZE};

/// The largest request whose class is computed on the fast path, in bytes.
pub const SMALL_LIMIT: usize = 512;
/// Alignment of every block, and the step between the small classes.
pub const ALIGNMENT: usize = 16;
/// The number of small classes.
pub const SMALL_CLASSES: usize = SMALL_LIMIT / ALIGNMENT + 1;

/// How many blocks of each medium class a page holds.
const MEDIUM_BLOCKS: [usize; 12] = [28, 25, 23, 21, 19, 17, 16, 14, 12, 11, 9, 8];

/// The number of classes.
pub const CLASSES: usize = SMALL_CLASSES + MEDIUM_BLOCKS.len();

/// The size of the blocks of each class, in bytes.
pub static BLOCK_SIZES: [u32; CLASSES] = block_sizes();

/// The largest request that has a class, in bytes.
pub const MEDIUM_LIMIT: usize = block_sizes()[CLASSES - 1] as usize;

/// The class of a medium request by `(size + 15) / 16 - SMALL_CLASSES`.
static MEDIUM_CLASS: [u8; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1] = medium_classes();

/// The blocks for the sampled ones of each group of classes, which share pages, in bytes: there are few such blocks, and of
/// each class there may be some. A group has the classes that fit, and are too large for the group before.
pub const GROUP_BLOCK_SIZES: [usize; 10] = [
    32,
    64,
    96,
    128,
    192,
    256,
    384,
    SMALL_LIMIT,
    1008,
    MEDIUM_LIMIT,
];

/// The number of such groups.
pub const GROUPS: usize = GROUP_BLOCK_SIZES.len();

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

/// The bytes set aside for a request of `size` bytes that the heap serves itself.
///
/// # Panics
/// If `size` is above [`MEDIUM_LIMIT`].
#[must_use]
pub fn block_size(size: usize) -> usize {
    BLOCK_SIZES[class_of(size)] as usize
}

#[allow(clippy::cast_possible_truncation)] // at most a page
const fn block_sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    sizes[0] = ALIGNMENT as u32;
    let mut class = 1;
    while class < CLASSES {
        sizes[class] = if class < SMALL_CLASSES {
            (class * ALIGNMENT) as u32
        } else {
            let share = (PAGE_SIZE - PAGE_HEADER) / MEDIUM_BLOCKS[class - SMALL_CLASSES];
            (share / ALIGNMENT * ALIGNMENT) as u32
        };
        class += 1;
    }
    sizes
}

#[allow(clippy::cast_possible_truncation)] // there are fewer than 256 groups
const fn groups() -> [u8; CLASSES] {
    let sizes = block_sizes();
    let mut groups = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let mut group = groups[class - 1];
        while sizes[class] as usize > GROUP_BLOCK_SIZES[group as usize] {
            group += 1;
        }
        groups[class] = group;
        class += 1;
    }
    groups
}

#[allow(clippy::cast_possible_truncation)] // there are fewer than 256 classes
const fn medium_classes() -> [u8; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1] {
    let sizes = block_sizes();
    let mut classes = [0; MEDIUM_LIMIT / ALIGNMENT - SMALL_CLASSES + 1];
    let mut class = SMALL_CLASSES;
    let mut at = 0;
    while at < classes.len() {
        if (at + SMALL_CLASSES) * ALIGNMENT > sizes[class] as usize {
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

    /// A quarter at most, as in the classes of other allocators; on average far less.
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
