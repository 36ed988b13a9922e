//! An allocator for small blocks that samples without cost on the fast path: its free lists end before the next sample
//! point.
//!
//! `malloc` pops a block from the list of a size class and `free` pushes to it, last in first out. The fast path does
//! nothing else, except that `free` checks whether a block belongs to the heap, and counts the pushes. When a list is
//! filled, the distance to the class's next sample point is known, and the list is cut before that point. So an
//! allocation that must be sampled finds its list empty, and takes the slow path that an empty list needs anyway. The
//! invariants D1 and D2 in `list.rs` make this exact. Only the slow path uses pages and arenas.
//!
//! The disadvantage: the heap notices late that the last block of a page was freed. It notices this when it counts the
//! list of the class, after 16 to 128 KiB of frees of that class.
//!
//! # What the caller must do
//!
//! The heap takes no lock. All callers hold the same lock, in CPython the GIL. The only exceptions are
//! [`Heap::remote_free`], [`Heap::owns`] and [`Heap::usable_size`], a heap that was [shared](Heap::share), and requests
//! that fallbacks serve, if there is a check for the lock ([`HeapConfig::holds_lock`]).
//!
//! # Limits
//!
//! The heap is not a general allocator: large requests go to a fallback, and memory moves from one class to another
//! only in pages of 16 KiB. It does not know the stack of an allocation: an [`HeapObserver`] finds that. It contains
//! nothing specific to Python.
//!
//! # Vocabulary
//!
//! - *arena*: 2 MiB from the system, at a multiple of 2 MiB; 128 pages.
//! - *page*: 16 KiB of blocks of one size class, behind a header. The processor's pages are called "OS pages" here.
//! - *block*: the memory of one allocation; a multiple of 16 bytes.
//! - *size class*: the blocks of one size.
//! - *list*: the free blocks of a class that `malloc` pops and `free` pushes to. Each page also has a list of its own,
//!   with the free blocks that are not on the class's list.
//! - *budget*: the number of blocks that `free` may push before it takes the slow path.
//! - *slot*: the head of a class's list, and the rest of its budget.
//! - *refill*: blocks moved from pages to an empty list.
//! - *retain* and *purge*: keep free memory for later use, and give it back to the system.
//! - *dirty* page: a free page that was used and has memory behind it. Otherwise it is *clean*.
//! - *collapse*: copy an arena of ordinary OS pages into one huge page (`MADV_COLLAPSE`).
//! - *fallback*: the allocator that the heap replaced; it serves requests that are too large for a
//!   class.
//! - *session*: from [`Heap::start`] to [`Heap::stop`], or to the next start.
//!
//! # Modules, in order of dependency
//!
//! A module uses only modules above it.
//!
//! | module | what it is |
//! |---|---|
//! | `geometry` | all sizes |
//! | `config` | the settings of the embedder |
//! | `observer` | the interfaces of the embedder: observer and fallback |
//! | `os` | all calls to the operating system |
//! | `page` | pages, blocks, slots, labels |
//! | `class` | size classes and their budgets |
//! | `addresses` | the set of sampled large blocks |
//! | `arena` | where pages come from; huge pages; purging. Inside: `header`, `queues`, `table`, `collapse` |
//! | `reservation` | the addresses of the state and the arena table |
//! | `heap` | the state of a heap |
//! | `list` | the invariants D1 and D2 |
//! | `supply` | blocks from pages to lists, and back |
//! | `refill` | the length of a list |
//! | `wave` | how many blocks a list retains |
//! | `session` | sampling on and off; the calls of the observer |
//! | `statistics` | totals |
//! | `survey` | the use of the pages, read without the lock |
//! | `live` | the blocks that are alive, one by one |
//! | `shared` | a heap that is also called by threads without its lock |
//! | `large` | requests that the fallbacks serve |
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
mod filter;
mod functions;
mod geometry;
mod heap;
mod large;
mod list;
mod live;
mod observer;
mod os;
mod page;
mod refill;
mod reservation;
mod session;
mod shared;
mod slow;
mod statistics;
mod supply;
mod survey;
mod wave;

pub use class::block_size;
pub use config::{HeapConfig, HoldsLock, HugePages, Trusts, UnknownHugePages};
pub use functions::DomainFunctions;
pub use geometry::MEDIUM_LIMIT;
pub use heap::Heap;
pub use live::LiveBlock;
pub use observer::{BlockDomain, Fallback, HeapObserver, NOT_INTERESTED, SampledBlock};
pub use shared::Shared;
pub use statistics::HeapStatistics;
pub use survey::{Copies, Survey, Use, arena_number};
