//! The instructions of a function, found by following its branches.

use super::instruction::{Instruction, Registers, Value, word};
use crate::binary::function::{Function, Set};

/// At most this many instructions of a function are followed.
const LONGEST_FUNCTION: usize = 30_000;
/// A jump over more bytes than this leaves the function.
const FARTHEST_JUMP: usize = 1 << 16;

impl Function {
    /// Follows the function at `start` in `code`, which is mapped at `text`.
    #[must_use]
    pub fn decode(code: &[u8], text: usize, start: usize) -> Self {
        let mut function = Self::default();
        let mut seen = Set::default();
        let mut open = vec![(start, Registers::new())];
        while let Some((mut at, mut registers)) = open.pop() {
            while let Some(word) = at.checked_sub(text).and_then(|at| word(code, at)) {
                if seen.len() >= LONGEST_FUNCTION || !seen.insert(at) {
                    break;
                }
                let instruction = Instruction::decode(word, at);
                function.note(instruction, &registers);
                match instruction {
                    Instruction::Call(callee) if !function.calls.contains(&callee) => {
                        function.calls.push(callee);
                    }
                    Instruction::Branch(target) if target.abs_diff(start) < FARTHEST_JUMP => {
                        open.push((target, registers.clone()));
                    }
                    Instruction::Jump(target) => {
                        if target.abs_diff(start) < FARTHEST_JUMP {
                            open.push((target, registers.clone()));
                        }
                        break;
                    }
                    Instruction::End => break,
                    _ => {}
                }
                registers.step(instruction);
                at += 4;
            }
        }
        function
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
