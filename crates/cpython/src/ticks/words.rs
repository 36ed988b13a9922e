//! The words of a tick: how the signal handler stores a stack.
//!
//! A tick has a word of its own ([`bits`]), and a word for each of these, innermost first:
//!
//! ```text
//! Frame       a Python frame: its code object, and the position in it
//! Call        the frames before it are run by a C function in whose part of the stack this address is
//! Collection  the frames before it are finalizers'; the collector has interrupted the frame after it
//! ```
//!
//! With [`bits::HAS_REGISTERS`], the registers come before them ([`Registers`](nthbyte_unwind::Registers)).

/// The tick's own word.
pub mod bits {
    /// The number of samples: the lowest bits.
    pub const SAMPLES: u64 = 0xffff;
    /// Whether the thread held the GIL.
    pub const HAS_GIL: u64 = 1 << 16;
    /// Whether outer frames are missing.
    pub const IS_CUT: u64 = 1 << 17;
    /// Whether the tick has registers, and the stack of native code is beside it.
    pub const HAS_REGISTERS: u64 = 1 << 18;
    /// The lowest bit of the generation of the running collection.
    pub const GENERATION: u32 = 19;
    /// Whether the tick has interrupted nthbyte's own code, so that it has no stack.
    pub const IS_INSIDE: u64 = 1 << 32;
    /// The lowest bit of the number of the labels in force and of the task.
    pub const LABELS: u32 = 33;
}

/// Bits of the position. Code objects are aligned to 8 bytes, and lie below 2^47. So do words of stacks.
const POSITION_BITS: u32 = 20;
/// The position of an instruction that does not lie in its code object.
pub const NO_POSITION: u32 = (1 << POSITION_BITS) - 1;
/// In place of a position: the address is a [`Word::Call`]'s, or it is a [`Word::Collection`].
const CALL: u32 = NO_POSITION - 1;
const COLLECTION: u32 = NO_POSITION - 2;

/// What a word of a tick says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The address of the code object, and the position: the number of the instruction's unit of two bytes, plus one.
    /// CPython up to 3.12 stores the unit before the one that runs.
    Frame(usize, u32),
    /// An address in the part of the stack of the C function.
    Call(usize),
    /// There is one at most.
    Collection,
}

impl Word {
    /// The word in a tick. `None` if the address is impossible.
    pub fn pack(self) -> Option<u64> {
        let (address, low) = match self {
            Self::Frame(code, position) if position < COLLECTION => (code, position),
            Self::Frame(code, _) => (code, NO_POSITION),
            Self::Call(stack) => (stack, CALL),
            Self::Collection => (0, COLLECTION),
        };
        if address >> 47 != 0 || !address.is_multiple_of(8) {
            return None;
        }
        Some((address as u64) >> 3 << POSITION_BITS | u64::from(low))
    }

    /// What a word says.
    pub const fn unpack(word: u64) -> Self {
        let address = ((word >> POSITION_BITS) << 3) as usize;
        match (word & NO_POSITION as u64) as u32 {
            CALL => Self::Call(address),
            COLLECTION => Self::Collection,
            position => Self::Frame(address, position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_packed() {
        const ADDRESS: usize = 0x7fff_ffff_fff8;
        for word in [
            Word::Frame(ADDRESS, 0),
            Word::Frame(8, COLLECTION - 1),
            Word::Frame(8, NO_POSITION),
            Word::Call(ADDRESS),
            Word::Collection,
        ] {
            assert_eq!(word.pack().map(Word::unpack), Some(word));
        }
        for position in [COLLECTION, CALL, u32::MAX] {
            let word = Word::Frame(8, position).pack().map(Word::unpack);
            assert_eq!(word, Some(Word::Frame(8, NO_POSITION)));
        }
        for impossible in [1 << 47, ADDRESS + 1, usize::MAX] {
            assert_eq!(Word::Frame(impossible, 0).pack(), None);
            assert_eq!(Word::Call(impossible).pack(), None);
        }
    }
}
