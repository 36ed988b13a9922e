//! Facts about a function, from its instructions.

use std::collections::HashSet;

use foldhash::fast::FixedState;

/// A set of addresses and offsets of the mapped library.
pub type Set<T> = HashSet<T, FixedState>;

/// At most this many instructions of a function are followed.
const LONGEST_FUNCTION: usize = 30_000;
/// A jump over more bytes than this leaves the function.
const FARTHEST_JUMP: usize = 1 << 16;

/// Where the processor goes after an instruction.
pub enum Next {
    /// To the instruction behind it.
    Behind,
    /// To this function, and then behind it.
    Call(usize),
    /// To this address, or behind it.
    Branch(usize),
    /// To this address.
    Jump(usize),
    /// Out of the function, or where is not known.
    Away,
}

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

impl Function {
    /// Follows the branches of the function at `start`. `read` notes what the instruction at an address does, and returns
    /// its length with its successors, or `None` if there is no instruction. `known` is what it knows of registers at that
    /// place.
    pub fn follow<Known: Clone>(
        start: usize,
        known: Known,
        mut read: impl FnMut(&mut Self, &mut Known, usize) -> Option<(usize, Next)>,
    ) -> Self {
        let mut function = Self::default();
        let mut seen = Set::default();
        let mut open = vec![(start, known)];
        while let Some((mut at, mut known)) = open.pop() {
            while seen.len() < LONGEST_FUNCTION && seen.insert(at) {
                let Some((length, next)) = read(&mut function, &mut known, at) else {
                    break;
                };
                match next {
                    Next::Call(callee) if !function.calls.contains(&callee) => {
                        function.calls.push(callee);
                    }
                    Next::Branch(target) | Next::Jump(target)
                        if target.abs_diff(start) < FARTHEST_JUMP =>
                    {
                        function.targets.insert(target);
                        open.push((target, known.clone()));
                    }
                    _ => {}
                }
                if matches!(next, Next::Jump(_) | Next::Away) {
                    break;
                }
                at += length;
            }
        }
        function
    }
}
