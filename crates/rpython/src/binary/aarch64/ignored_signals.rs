//! The count of those who want `_vmprof` to ignore its signal.
//!
//! `vmprof_ignore_signals` of `rvmprof/src/shared/vmprof_common.h` adds 1 to it, and subtracts 1. It has no name, but the function
//! `vmprof_enter_signal`, which PyPy exports, does nothing but count itself elsewhere and return it.

use std::ops::Range;

use super::instruction::{Instruction, Registers, Value, word};

/// The function has fewer instructions.
const LONGEST: usize = 24;

/// The address of the count, from the code of `vmprof_enter_signal` at an address. `None` if it is other code, or if the count
/// would not lie in `data`.
#[must_use]
pub fn count_of_ignoring(code: &[u8], address: usize, data: &Range<usize>) -> Option<usize> {
    let mut registers = Registers::new();
    for offset in (0..4 * LONGEST).step_by(4) {
        let instruction = Instruction::decode(word(code, offset)?, address + offset);
        match instruction {
            Instruction::End => {
                return match registers.value(0) {
                    Value::At(count) if data.contains(&count) && count % 8 == 0 => Some(count),
                    _ => None,
                };
            }
            Instruction::Jump(_) | Instruction::Branch(_) => return None,
            _ => registers.step(instruction),
        }
    }
    None
}
