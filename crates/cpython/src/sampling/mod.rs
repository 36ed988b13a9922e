//! From a sampled block to events in the profile.
//!
//! ```text
//! tracker ─▶ walker ─▶ codes            the stack of the running thread
//!         ─▶ types ─▶ attributes, strings   what the block holds
//!         ─▶ allocation_sites           what memory is that is no object
//!         ─▶ tokens                     which sample a block is
//! ```
//!
//! Nothing in here calls Python: it runs while a program allocates.

pub mod allocation_sites;
pub mod attributes;
pub mod codes;
pub mod strings;
pub mod tokens;
pub mod tracker;
pub mod types;
pub mod walker;
