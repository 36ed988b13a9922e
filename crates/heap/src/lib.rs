//! Where CPython's small objects live: an allocator whose free lists are cut at the sample point.
//!
//! Vocabulary, used in every file of this crate:
//!
//! - *heap*: all of it; one mapping with the state and the arena table ([`Heap`]).
//! - *arena*: 2 MiB from the system, at a multiple of 2 MiB; 128 pages.
//! - *page*: 16 KiB of blocks of one size class, behind a header. What the processor calls a page
//!   is an "OS page" here.
//! - *block*: what an allocation gets; a multiple of 16 bytes.
//! - *size class*: the blocks of one size.
//! - *list*: of a class, the free blocks that `malloc` pops and `free` pushes to.
//!   *Own list*: of a page, its free blocks that are not on the class's list.
//! - *slot*: the head of a class's list, and the *allowance*: how often `free` may push before it must ask.
//! - *fallback*: the allocator that was there before; serves what is too large for a class.
//! - *session*: from one [`Heap::start`] to the next, or to [`Heap::stop`].
//!
//! The shape: `malloc` pops a class's list and `free` pushes to it, last in first out, with nothing
//! else on the fast path than to find out whether a block is the heap's own, and to count the pushes. Whoever
//! fills a list knows how far it is to the class's next sample point and cuts the list before it, so that the allocation to
//! be sampled is one that finds its list empty: `deal.rs` has the invariants. Pages and
//! arenas are concerns of the slow path alone.
//!
//! What was given up for it: a page does not notice at once that its last block was freed, but only when its
//! class's list is looked at, after 16 to 128 KiB of frees of that class.
//!
//! The heap is externally synchronised: whoever calls it holds one lock, in CPython the GIL, that
//! everyone else who calls it holds too. The exceptions are [`Heap::remote_free`], and a heap that was [shared](Heap::share). It knows nothing of Python.

mod addresses;
mod arena;
mod class;
mod deal;
mod entry;
mod fast;
mod heap;
mod large;
mod observer;
mod os;
mod page;
mod session;
mod shared;
mod slow;
mod statistics;

pub use class::{MEDIUM_LIMIT, block_size};
pub use fast::Functions;
pub use heap::{Config, Heap};
pub use observer::{Domain, Fallback, NOT_INTERESTED, Observer, Sample};
pub use os::HugePages;
pub use shared::{HoldsLock, Shared};
pub use statistics::Statistics;
