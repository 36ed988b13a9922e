//! An allocator for small blocks that samples for free: its free lists are cut before the sample point.
//!
//! `malloc` pops the list of a size class and `free` pushes to it, last in first out. On the fast path there is nothing
//! else, except that `free` finds out whether a block is the heap's own, and counts the pushes. When a
//! list is filled, the distance to the class's next sample point is known, and the list is cut before it. So
//! an allocation that must be sampled finds its list empty, and takes the slow path that it would take anyway. The
//! invariants D1 and D2 that make this exact are in `list.rs`. Pages and arenas matter on the slow path only.
//!
//! What this costs: that the last block of a page was freed is noticed late, only when the
//! list of its class is counted, after 16 to 128 KiB of frees of that class.
//!
//! # What the caller must do
//!
//! The heap takes no lock. Whoever calls it holds one lock, in CPython the GIL, that
//! all other callers hold too. The only exceptions are [`Heap::remote_free`], [`Heap::owns`] and [`Heap::usable_size`], and a heap that was [shared](Heap::share).
//!
//! # What it is not for
//!
//! It is no general allocator: large requests go to a fallback, and memory of one class moves to another only in pages of
//! 16 KiB. It does not know who allocates: an [`Observer`] finds that out. It knows nothing of Python.
//!
//! # Vocabulary
//!
//! - *arena*: 2 MiB from the system, at a multiple of 2 MiB; 128 pages.
//! - *page*: 16 KiB of blocks of one size class, behind a header. The processor's pages are called "OS pages" here.
//! - *block*: the memory of one allocation; a multiple of 16 bytes.
//! - *size class*: the blocks of one size.
//! - *list*: the free blocks of a class that `malloc` pops and `free` pushes to. Each page also has a list of its own, with
//!   the free blocks that are not on the class's list.
//! - *budget*: how many blocks `free` may push before it takes the slow path.
//! - *slot*: the head of a class's list, and what is left of its budget.
//! - *refill*: blocks moved from pages to an empty list.
//! - *retain* and *purge*: keep free memory for later use, and give it back to the system.
//! - *dirty* page: a free page that was used and has memory behind it. Otherwise it is *clean*.
//! - *collapse*: copy an arena of ordinary OS pages into one huge page (`MADV_COLLAPSE`).
//! - *fallback*: the allocator that the heap replaced; it serves what is too large for a class.
//! - *session*: from [`Heap::start`] to [`Heap::stop`], or to the next start.
//!
//! # Modules, in order of dependency
//!
//! A module uses only modules above it.
//!
//! | module | what it is |
//! |---|---|
//! | `geometry` | all sizes |
//! | `config` | what the embedder may choose |
//! | `observer` | the interfaces of the embedder: observer and fallback |
//! | `os` | all calls to the operating system |
//! | `page` | pages, blocks, slots, labels |
//! | `class` | size classes and their budgets |
//! | `addresses` | the set of sampled large blocks |
//! | `arena` | where pages come from; huge pages; purging. Inside: `header`, `queues`, `table`, `collapse` |
//! | `heap` | the state of a heap |
//! | `list` | the invariants D1 and D2 |
//! | `supply` | blocks from pages to lists, and back |
//! | `refill` | how long a list may be |
//! | `session` | sampling on and off; the calls of the observer |
//! | `statistics` | totals |
//! | `shared` | a heap that is called by those who do not hold its lock |
//! | `large` | what the fallbacks serve |
//! | `fast` | the fast paths |
//! | `slow` | the slow paths |
//! | `entry` | entries of the slow paths, which note the allocation site |
//! | `functions` | what the embedder installs |

mod addresses;
mod arena;
mod class;
mod config;
mod entry;
mod fast;
mod functions;
mod geometry;
mod heap;
mod large;
mod list;
mod observer;
mod os;
mod page;
mod refill;
mod session;
mod shared;
mod slow;
mod statistics;
mod supply;

pub use class::block_size;
pub use config::{Config, HugePages, UnknownHugePages};
pub use functions::Functions;
pub use geometry::MEDIUM_LIMIT;
pub use heap::Heap;
pub use observer::{Domain, Fallback, NOT_INTERESTED, Observer, Sample};
pub use shared::{HoldsLock, Shared};
pub use statistics::Statistics;
