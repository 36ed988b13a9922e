//! Which calls of `malloc` are the collector's, by the code around them.
//!
//! Inside of a collection, all calls are. Outside of one, the collector allocates where `id()` or a set needs the
//! identity of a young object, where the program writes to an old one, and where a small object is old from the start:
//!
//! ```text
//! an arena                       mov x0, #0x80000        its size is a constant
//!                                bl  malloc
//! a part of an AddressStack      mov x0, #0x1fe0         so is this one
//!                                bl  malloc
//! ```
//!
//! Tables of an `AddressDict`, which x86-64 has a third form for, count as the program's: there are three of them.

use super::instruction::{Instruction, Registers, Value, word};
use crate::binary::incminimark::{ADDRESS_STACK_PART, ARENA};

/// The constant is set within this many instructions before the call.
const WITHIN: usize = 6;

/// No words of the stack are looked at.
pub const WORDS: usize = 0;

/// Whether a call of `malloc` for `size` bytes, which returns to the address `after`, is the collector's. `code` is the
/// library's, at the address `start`.
pub fn is_collectors(
    code: &[u8],
    start: usize,
    size: u64,
    after: usize,
    _: impl FnOnce(&mut [usize; WORDS]),
) -> bool {
    let call = after.wrapping_sub(start).wrapping_sub(4);
    (size == ARENA || size == ADDRESS_STACK_PART)
        && matches!(
            word(code, call).map(|word| Instruction::decode(word, call)),
            Some(Instruction::Call(_))
        )
        && argument(code, call) == Value::Is(size as usize)
}

/// What the instructions before a call say of its first argument.
fn argument(code: &[u8], call: usize) -> Value {
    let mut registers = Registers::new();
    for at in (call.saturating_sub(4 * WITHIN)..call).step_by(4) {
        let Some(word) = word(code, at) else {
            continue;
        };
        let instruction = Instruction::decode(word, at);
        match instruction {
            // What comes after it is reached from elsewhere.
            Instruction::Jump(_) | Instruction::End => registers = Registers::new(),
            _ => registers.step(instruction),
        }
    }
    registers.value(0)
}
