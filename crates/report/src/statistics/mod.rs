//! Statistics that several reports need: what a difference is worth, and what many tests together are worth.

pub mod difference;
pub mod discovery;
pub mod spread;
pub mod tail;
