//! Which blocks may be sampled: a free searches for these only.
//!
//! - A sampled block below the *limit* is *marked*: the inner allocator is asked for one at the start of an OS page, and
//!   of a size that it does not give out again for other requests. A free sees the address.
//! - From the limit on, each block may be sampled: `dealloc` and `realloc` are told the size. So a large block keeps its
//!   layout, and the inner allocator can resize it in place or move its pages.
//!
//! The limit is 0 while the period is so short that marks would waste too much memory.
//!
//! A marked block must be given back with the layout that the inner allocator was asked for. So it is in the table of
//! blocks until its free, also when its session has ended. Its address alone makes each free search for it, whatever the
//! limit is by then. A sampled block that is not marked may be missed by its free if the limit has become larger: it was
//! a sample of an earlier session.

use std::alloc::Layout;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::memory::SMALLEST_PAGE;
use nthbyte_requests::blocks::FoundBlock;

/// The smallest size of a marked block, which glibc gives back at its free. Smaller ones stay as they are in a list of
/// the thread: each free of a loop would search.
const LEAST: usize = 1056;
/// A search takes a hundredth of what an allocator needs for such blocks, and one in sixteen is sampled at the default
/// period.
const LIMIT: usize = 32 << 10;
/// Below this period, no block is marked. With this one, marks waste up to a quarter of the memory.
const MARKED_FROM: u64 = 16 << 10;

/// The limit.
static SEARCHED_FROM: AtomicUsize = AtomicUsize::new(LIMIT);

/// The caller's own number of a block in the table.
const UNMARKED: usize = 0;
const MARKED: usize = 1;

/// Chooses the limit for a session with this period, in bytes.
pub(super) fn choose(period: u64) {
    let limit = if period < MARKED_FROM { 0 } else { LIMIT };
    SEARCHED_FROM.store(limit, Relaxed);
}

#[inline(always)]
pub(super) fn may_be_sampled(block: *mut u8, size: usize) -> bool {
    (block as usize).is_multiple_of(SMALLEST_PAGE) || size >= SEARCHED_FROM.load(Relaxed)
}

/// What the inner allocator is asked for, for a request that is sampled, and the block's number in the table. `None` if
/// there is no such layout.
pub(super) fn of_sample(layout: Layout) -> Option<(Layout, usize)> {
    if layout.size() >= SEARCHED_FROM.load(Relaxed) {
        return Some((layout, UNMARKED));
    }
    let (size, align) = marked(layout);
    Some((Layout::from_size_align(size, align).ok()?, MARKED))
}

/// Whether a block in the table is marked.
pub(super) const fn is_marked(found: FoundBlock) -> bool {
    found.detail == MARKED
}

/// What the inner allocator was asked for, for a block that the program asked for with `layout`.
pub(super) fn asked(found: Option<FoundBlock>, layout: Layout) -> Layout {
    match found {
        Some(found) if is_marked(found) => {
            let (size, align) = marked(layout);
            // SAFETY: `of_sample` has made the same layout of the same one.
            unsafe { Layout::from_size_align_unchecked(size, align) }
        }
        _ => layout,
    }
}

/// Twice makes the same as once, so an allocator of this kind may be inside of another one.
fn marked(layout: Layout) -> (usize, usize) {
    (layout.size().max(LEAST), layout.align().max(SMALLEST_PAGE))
}
