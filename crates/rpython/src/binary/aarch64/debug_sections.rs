//! The calls that begin and end a section of RPython's log ([`debug_sections`](crate::binary::debug_sections())).
//!
//! ```text
//! adrp x0, "gc-minor"
//! add  x0, x0, :lo12:"gc-minor"
//! bl   pypy_debug_start            the first function that is called with it
//! ...
//! bl   pypy_debug_stop             the only other one
//! ```

use std::ops::Range;

use super::instruction::{Instruction, Registers, Value, word};

/// The functions that the code in this range calls with such a constant as the first argument, each once, those first that
/// are called first. Constants are followed from one instruction to the next one, whatever leads there.
pub fn calls_with(
    code: &[u8],
    text: usize,
    range: Range<usize>,
    mut is_category: impl FnMut(usize) -> bool,
) -> Vec<usize> {
    let mut found = Vec::new();
    let mut registers = Registers::new();
    for at in range.clone().step_by(4) {
        let Some(word) = at.checked_sub(text).and_then(|at| word(code, at)) else {
            break;
        };
        let instruction = Instruction::decode(word, at);
        if let Instruction::Call(target) | Instruction::Jump(target) = instruction
            && !range.contains(&target)
            && !found.contains(&target)
            && matches!(registers.value(0), Value::Is(address) if is_category(address))
        {
            found.push(target);
        }
        registers.step(instruction);
    }
    found
}
