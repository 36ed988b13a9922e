//! What the instructions of a function do, and where they lead.

use super::instruction::{Instruction, Registers, Value, word};
use crate::binary::function::{Function, Next};

impl Function {
    /// Follows the function at `start` in `code`, which is mapped at `text`.
    #[must_use]
    pub fn decode(code: &[u8], text: usize, start: usize) -> Self {
        Self::follow(start, Registers::new(), |function, registers, at| {
            let instruction = Instruction::decode(word(code, at.checked_sub(text)?)?, at);
            function.note(instruction, registers);
            registers.step(instruction);
            let next = match instruction {
                Instruction::Call(callee) => Next::Call(callee),
                Instruction::Branch(target) => Next::Branch(target),
                Instruction::Jump(target) => Next::Jump(target),
                Instruction::End => Next::Away,
                _ => Next::Behind,
            };
            Some((4, next))
        })
    }

    fn note(&mut self, instruction: Instruction, registers: &Registers) {
        match instruction {
            Instruction::Store(from, base, offset) => self.store(from, base, offset, registers),
            Instruction::StorePair([first, second], base, offset) => {
                self.store(first, base, offset, registers);
                self.store(second, base, offset.wrapping_add(8), registers);
            }
            _ => {}
        }
    }

    fn store(&mut self, from: usize, base: usize, offset: usize, registers: &Registers) {
        // The stack pointer.
        if base == 31 {
            return;
        }
        if let Some(address) = registers.address(base, offset) {
            self.stores_absolute.insert(address);
            return;
        }
        self.stores.insert(offset);
        if let Value::Is(constant) = registers.value(from) {
            self.constants.insert((offset, constant as i32));
        }
    }
}
