//! A generational nursery whose limit check is also the check for a sample.
//!
//! Allocation in a nursery moves a pointer and compares it with a limit. "Low Overhead Allocation Sampling in a Garbage Collected
//! Virtual Machine" (the *paper*) takes samples of allocations at no further cost: the limit is the next sample point, if that
//! comes before the nursery's end. This crate is that technique as running code, for people who write virtual machines: a
//! small collector, and the example of how to embed [`nthbyte_sampling`].
//!
//! ```
//! use nthbyte_nursery::{Heap, Items, Observer, Sample, Settings, Type, TypeId};
//! use nthbyte_sampling::{Distances, Period, Sampler};
//!
//! #[derive(Default)]
//! struct Count(usize);
//! impl Observer for Count {
//!     fn sampled(&mut self, sample: Sample) {
//!         self.0 += sample.points as usize;
//!     }
//! }
//!
//! let pair = Type { name: "pair".into(), slots: 2, bytes: 0, items: Items::None }; // 24 bytes with its header
//! let mut heap = Heap::new(Settings::default(), vec![pair], Count::default());
//! let period = Period::new(4096).unwrap();
//! heap.start_sampling(Sampler::new(period, Distances::Fixed, 0));
//! for number in 0..10_000 {
//!     let integer = heap.push_integer(number);
//!     let pair = heap.allocate(TypeId(0));
//!     heap.store(pair, 0, integer);
//!     heap.truncate(integer);
//! }
//! assert_eq!(heap.observer().0, 10_000 * 24 / 4096);
//! ```
//!
//! # Where the paper stands in the code
//!
//! | paper | code |
//! |---|---|
//! | 2.2, listing 1: `allocate` | `nursery`, `Nursery::allocate` |
//! | 2.2, 3.2, listings 2 and 4: `collect_and_reserve` | `heap`, `Heap::collect_and_reserve`; the arithmetic in `Nursery::reserved_at_sample_point` |
//! | 3.3: periods longer than the nursery | `Nursery::reset` and `jump` |
//! | 3.4, listing 5: large objects, and objects with several sample points | `Nursery::allocated_outside` |
//! | 3.5: type and survival | `MovingHeap::settle_samples` in `collect`, [`Observer::settled`] |
//! | 3.6: statistics | [`NurseryStatistics`] |
//! | 3.7: the fuzzer | `tests/prediction.rs` |
//!
//! Beyond the paper: distances may be random ([`nthbyte_sampling::Distances`]), sampled objects are followed until they are
//! freed, and pinned objects, as RPython's collector has them, leave gaps in the nursery, over which `nursery_free` and the
//! sample point jump.
//!
//! # What it is not for
//!
//! One thread, no finalizers, no weak references, and major collections that are not incremental. The fast path is as short as a
//! collector in production has it, the rest is as simple as it can be.

pub(crate) mod collect;
pub(crate) mod heap;
mod nursery;
mod object;
mod observer;
mod old;
mod roots;

pub use heap::{HeapSizes, MovingHeap};
pub use object::{Items, Type, TypeId};
pub use observer::{HeapCollection, NurseryStatistics, Observer, SampleId, SampledObject};
pub use roots::Handle;
