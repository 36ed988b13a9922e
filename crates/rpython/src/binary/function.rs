//! What is known of a function by its instructions.

use std::collections::HashSet;

use foldhash::fast::FixedState;

/// A set of addresses and offsets of the mapped library.
pub type Set<T> = HashSet<T, FixedState>;

/// The properties of a function that the search uses.
#[derive(Debug, Default)]
pub struct Function {
    /// Functions that it calls directly, each once, in the order of the first call.
    pub calls: Vec<usize>,
    /// Offsets from a register (other than the stack pointer) at which it stores a word.
    pub stores: Set<usize>,
    /// The constants that it stores as words, and their offsets from a register.
    pub constants: Set<(usize, i32)>,
    /// Addresses that are known at which it stores a word.
    pub stores_absolute: Set<usize>,
    /// Targets of its jumps within itself.
    pub targets: Set<usize>,
}
