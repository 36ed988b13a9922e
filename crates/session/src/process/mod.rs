//! The process that the session is a guest of.

pub mod image;
pub mod memory;
