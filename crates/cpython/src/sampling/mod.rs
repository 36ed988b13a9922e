//! Converts sampled blocks into events of the profile.
//!
//! ```text
//! tracker ─▶ walker ─▶ codes            the stack of the current thread
//!                   ─▶ data_stack       which of its frames are as they were
//!         ─▶ types ─▶ attributes, strings   the type of the block's content
//!         ─▶ allocation_sites           names for memory that is not an object
//!         ─▶ tokens                     the sample of each block
//! native  ─▶ walker ─▶ codes            the stack of a sample of native memory
//!                   ─▶ merge            Python frames and native ones
//!                   ─▶ kept             the same later, when a library is known
//! ```
//!
//! No code in this module calls Python: it runs while the program allocates.

pub mod allocation_sites;
pub mod attributes;
pub mod codes;
pub mod data_stack;
pub mod kept;
pub mod merge;
pub mod native;
mod rounding;
pub mod strings;
pub mod tokens;
pub mod tracker;
pub mod types;
pub mod walker;
