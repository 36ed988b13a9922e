//! Which requests of an allocator are sampled, by thread, and the blocks that were: what everything shares that stands
//! before an allocator.
//!
//! ```text
//! a request of s bytes: countdown of the thread -= s ─▶ above 0: the allocator
//!                                │ 0, or below
//!                                ▼
//!                       sampler: sample points in it ─▶ the caller records the sample ─▶ blocks: address and token
//! a free: a block that may be sampled ─▶ blocks: is it? ─▶ the caller records the free
//! ```
//!
//! # What the caller must do
//!
//! - Keep a [`ThreadState`] for each thread, which begins as zeroes, and subtract each request from its `countdown`. If that
//!   reaches 0 or falls below, ask [`sampler::points`].
//! - Raise its `busy` while the requests of the thread are not the program's ([`Busy`]).
//! - Have one session at a time: there is one sampler in the process for each library that has this crate.
//!
//! # What this crate guarantees
//!
//! Nothing here allocates from the allocator, or waits. Any thread may call it at any time, also in a signal handler and
//! in the child of a fork.
//!
//! # What this crate does not do
//!
//! It does not replace functions (`nthbyte-native` and `nthbyte-global-alloc` do), and records nothing.

#![cfg(target_os = "linux")]

pub mod blocks;
pub mod pages;
pub mod sampler;
mod thread;

pub use thread::{Busy, ThreadState};
