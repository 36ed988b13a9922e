//! The calls that begin and end a section of RPython's log ([`debug_sections`](crate::binary::debug_sections())).
//!
//! ```text
//! lea  "gc-minor"(%rip), %rbp
//! mov  %rbp, %rdi
//! call pypy_debug_start            the first function that is called with it
//! ...
//! mov  %rbp, %rdi
//! call pypy_debug_stop             the only other one
//! ```

use std::ops::Range;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    Register,
};

const REGISTERS: usize = 16;
/// What a call leaves of no value (System V ABI): rax, rcx, rdx, rsi, rdi, and r8 to r11.
const NOT_KEPT: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const RDI: usize = 7;

/// The functions that the code in this range calls with such a constant as the first argument, each once, in the order of
/// addresses. Constants are followed from one instruction to the next one, whatever leads there.
pub fn calls_with(
    code: &[u8],
    text: usize,
    range: Range<usize>,
    mut is_category: impl FnMut(usize) -> bool,
) -> Vec<usize> {
    let mut found = Vec::new();
    let mut constants = [None::<usize>; REGISTERS];
    let bytes = range
        .start
        .checked_sub(text)
        .and_then(|start| code.get(start..range.end.checked_sub(text)?))
        .unwrap_or_default();
    let mut info = InstructionInfoFactory::new();
    for instruction in Decoder::with_ip(64, bytes, range.start as u64, DecoderOptions::NONE) {
        let flow = instruction.flow_control();
        if matches!(flow, FlowControl::Call | FlowControl::UnconditionalBranch) {
            let target = instruction.near_branch_target() as usize;
            if !range.contains(&target)
                && !found.contains(&target)
                && constants[RDI].is_some_and(&mut is_category)
            {
                found.push(target);
            }
        }
        if matches!(flow, FlowControl::Call | FlowControl::IndirectCall) {
            NOT_KEPT
                .iter()
                .for_each(|&register| constants[register] = None);
        } else {
            let value = value_of(&instruction, &constants);
            for used in info.info(&instruction).used_registers() {
                let is_written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                if let (true, Some(register)) = (is_written, number(used.register())) {
                    constants[register] = None;
                }
            }
            if let (Some(value), Some(register)) = (value, number(instruction.op0_register())) {
                constants[register] = Some(value);
            }
        }
    }
    found
}

/// The address that an instruction loads into a register, if it is known.
fn value_of(instruction: &Instruction, constants: &[Option<usize>; REGISTERS]) -> Option<usize> {
    match instruction.code() {
        Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address() as usize)
        }
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => constants[number(instruction.op1_register())?],
        _ => None,
    }
}

/// The number of a general register, of which only a part may be meant.
fn number(register: Register) -> Option<usize> {
    let whole = register.full_register();
    whole.is_gpr64().then(|| whole.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: usize = 0x1000;

    /// Calls of the functions at these addresses, which lie behind the code, with a constant in a register that calls keep.
    fn code(targets: &[usize]) -> Vec<u8> {
        // lea 0x9000(%rip), %rbp
        let mut code = vec![0x48, 0x8d, 0x2d];
        code.extend((0x9000_i32 - 0x1007).to_le_bytes());
        for target in targets {
            // mov %rbp, %rdi; call target
            code.extend([0x48, 0x89, 0xef, 0xe8]);
            let next = TEXT + code.len() + 4;
            code.extend((*target as i32 - next as i32).to_le_bytes());
            // call target, with something else
            code.extend([0xe8]);
            code.extend([0, 8, 0, 0]);
        }
        code
    }

    #[test]
    fn constants_are_followed_to_calls() {
        let code = code(&[0x3000, 0x4000, 0x3000]);
        let end = TEXT + code.len();
        let of = |at: usize| calls_with(&code, TEXT, TEXT..end, |address| address == at);
        assert_eq!(of(0x9000), [0x3000, 0x4000]);
        assert_eq!(of(0x9001), [0; 0]);
        // The register is written to.
        let mut other = code.clone();
        other.splice(7..7, [0x31, 0xed]);
        let none = calls_with(&other, TEXT, TEXT..end + 2, |address| address == 0x9000);
        assert_eq!(none, [0; 0]);
    }
}
