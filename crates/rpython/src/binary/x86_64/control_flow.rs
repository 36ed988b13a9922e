//! The instructions of a function, found by following its branches.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

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
        let mut open = vec![start];
        while let Some(from) = open.pop() {
            let Some(bytes) = from.checked_sub(text).and_then(|at| code.get(at..)) else {
                continue;
            };
            let mut decoder = Decoder::with_ip(64, bytes, from as u64, DecoderOptions::NONE);
            while decoder.can_decode() && seen.len() < LONGEST_FUNCTION {
                let instruction = decoder.decode();
                if !seen.insert(instruction.ip()) || instruction.is_invalid() {
                    break;
                }
                function.note(&instruction);
                match instruction.flow_control() {
                    FlowControl::Next | FlowControl::IndirectCall => {}
                    FlowControl::Call => {
                        let callee = instruction.near_branch_target() as usize;
                        if callee != 0 && !function.calls.contains(&callee) {
                            function.calls.push(callee);
                        }
                    }
                    FlowControl::ConditionalBranch => {
                        function.follow(&instruction, start, &mut open)
                    }
                    FlowControl::UnconditionalBranch => {
                        function.follow(&instruction, start, &mut open);
                        break;
                    }
                    _ => break,
                }
            }
        }
        function
    }

    fn follow(&mut self, jump: &Instruction, start: usize, open: &mut Vec<usize>) {
        let target = jump.near_branch_target() as usize;
        if target.abs_diff(start) < FARTHEST_JUMP {
            self.targets.insert(target);
            open.push(target);
        }
    }

    fn note(&mut self, instruction: &Instruction) {
        let stores = matches!(
            instruction.code(),
            Code::Mov_rm64_r64 | Code::Mov_rm64_imm32
        ) && instruction.op0_kind() == OpKind::Memory;
        if !stores || instruction.memory_index() != Register::None {
            return;
        }
        let displacement = instruction.memory_displacement64() as usize;
        match instruction.memory_base() {
            Register::RIP => {
                self.stores_absolute.insert(displacement);
            }
            Register::RSP | Register::None => {}
            _ => {
                self.stores.insert(displacement);
                if instruction.code() == Code::Mov_rm64_imm32 {
                    let constant = instruction.immediate32to64() as i32;
                    self.constants.insert((displacement, constant));
                }
            }
        }
    }
}
