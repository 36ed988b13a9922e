//! What the instructions of a function do, and where they lead.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

use crate::binary::function::{Function, Next};

impl Function {
    /// Follows the function at `start` in `code`, which is mapped at `text`.
    #[must_use]
    pub fn decode(code: &[u8], text: usize, start: usize) -> Self {
        let mut decoder = Decoder::with_ip(64, code, text as u64, DecoderOptions::NONE);
        Self::follow(start, (), |function, (), at| {
            decoder.set_position(at.checked_sub(text)?).ok()?;
            decoder.set_ip(at as u64);
            let instruction = decoder.can_decode().then(|| decoder.decode())?;
            if instruction.is_invalid() {
                return None;
            }
            function.note(&instruction);
            let target = instruction.near_branch_target() as usize;
            let next = match instruction.flow_control() {
                FlowControl::Call if target != 0 => Next::Call(target),
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => Next::Behind,
                FlowControl::ConditionalBranch => Next::Branch(target),
                FlowControl::UnconditionalBranch => Next::Jump(target),
                _ => Next::Away,
            };
            Some((instruction.len(), next))
        })
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
