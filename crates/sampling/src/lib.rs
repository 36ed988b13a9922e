//! When to sample: periods, sample points and weights.
//!
//! Vocabulary, used in every file of this crate:
//!
//! - The bytes that a program allocates are numbered 1, 2, 3, … in the order of allocation. Some of them are
//!   *sample points*. An allocation is *sampled* if at least one of its bytes is a sample point.
//! - *distance*: from one sample point to the next, in bytes, at least 1.
//! - *period*: the mean distance ([`Period`]).
//! - *countdown*: the distance to the next sample point ([`Countdown`]).
//! - *weight*: how many allocations and bytes a sampled allocation stands for ([`Weight`]).
//!
//! An allocator that allocates by moving a pointer has one [`Sampler`]. An allocator with
//! size classes may give each class its own [`Countdown`]: if the distances are exponential with the
//! same mean, the union of the classes' sample points is again a Poisson process of that mean.
//!
//! The period may change at any byte: [`SamplePoints::set_period`]. Then the weight of an allocation follows from the
//! period that was in force when it began.
//!
//! ```
//! use nthbyte_sampling::{Distances, Period, Sampler};
//!
//! let period = Period::new(4096).unwrap();
//! let mut sampler = Sampler::new(period, Distances::Fixed, 0);
//! assert_eq!(sampler.advance(4095), 0); // bytes 1 to 4095: no sample point among them
//! assert_eq!(sampler.bytes_until_sample(), 1);
//! assert_eq!(sampler.advance(10_000), 3); // bytes 4096, 8192 and 12288
//! ```
//!
//! The crate needs neither `std` nor an allocator, has no dependencies (the feature `serde` adds one), and has no
//! operation that can panic.

#![no_std]
#![forbid(unsafe_code)]

mod countdown;
mod distances;
mod logarithm;
mod period;
mod random;
mod size;
mod weight;

pub use countdown::{Countdown, Sampler};
pub use distances::{Distances, SamplePoints};
pub use period::Period;
pub use random::Random;
pub use size::parse_size;
pub use weight::Weight;
