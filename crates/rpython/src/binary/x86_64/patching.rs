//! Jumps, and the instructions that a detour moves, which may be several: a jump is longer than many of them.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction,
    InstructionBlock, OpKind,
};

use crate::binary::function::Function;

/// Bytes of `jmp rel32` and of `call rel32`.
pub const JUMP: usize = 5;
/// The largest distance between the code and a page for it: a `jmp rel32` and relocated operands
/// must reach the page.
pub const REACH: usize = 0x7000_0000;
/// What a jump leaves of the instructions that it replaces becomes `nop`.
pub const FILLER: u8 = 0x90;

/// The first instructions of a function, which a jump replaces.
pub struct First {
    instructions: Vec<Instruction>,
    bytes: Vec<u8>,
    target: usize,
}

impl First {
    /// Of the function at `target` in `code`, which is mapped at `text`.
    ///
    /// # Errors
    /// One clause, if they cannot be replaced.
    pub fn read(code: &[u8], text: usize, target: usize) -> Result<Self, String> {
        let bytes = target
            .checked_sub(text)
            .and_then(|at| code.get(at..))
            .unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, target as u64, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        let mut length = 0;
        while length < JUMP {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err("its first instructions could not be decoded".to_owned());
            }
            let leaves = instruction.is_jmp_short_or_near()
                && !(text..text + code.len()).contains(&(instruction.near_branch64() as usize));
            if leaves {
                return Err("it is hooked already".to_owned());
            }
            // The copy does not need `endbr64`: only direct jumps and calls lead to the trampoline.
            if instruction.code() != Code::Endbr64 {
                instructions.push(instruction);
            }
            length += instruction.len();
        }
        let overwritten = target + 1..target + length;
        let targets = Function::decode(code, text, target).targets;
        if targets.iter().any(|to| overwritten.contains(to)) {
            return Err("it jumps back into its first instructions".to_owned());
        }
        Ok(Self {
            instructions,
            bytes: bytes[..length].to_vec(),
            target,
        })
    }

    /// The bytes of all of them.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Their machine code at `page`.
    ///
    /// # Errors
    /// One clause, if they cannot lie there.
    pub fn moved_to(&self, page: usize) -> Result<Vec<u8>, String> {
        move_to(page, &self.instructions, &self.bytes, self.target)
    }
}

/// The machine code of `instructions` at `page`; their function is at `target` and has these bytes. Nearly always they
/// are the same there. If not, they are encoded again; the tables for this take a million instructions to make.
fn move_to(
    page: usize,
    instructions: &[Instruction],
    bytes: &[u8],
    target: usize,
) -> Result<Vec<u8>, String> {
    if !instructions.iter().any(depends_on_its_place) {
        let code = instructions.iter().flat_map(|instruction| {
            let at = instruction.ip() as usize - target;
            &bytes[at..at + instruction.len()]
        });
        return Ok(code.copied().collect());
    }
    let block = InstructionBlock::new(instructions, page as u64);
    BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
        .map(|encoded| encoded.code_buffer)
        .map_err(|error| format!("its first instructions could not be moved: {error}"))
}

/// Whether an instruction contains a distance from itself: to its operand in memory or to the target of its branch.
fn depends_on_its_place(instruction: &Instruction) -> bool {
    let is_distance = |operand| {
        matches!(
            operand,
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
    };
    instruction.is_ip_rel_memory_operand() || instruction.op_kinds().any(is_distance)
}

/// The import slot whose function the instruction at `at` in `code` calls, by the function's stub in the library. `None` if
/// it is another instruction than `call rel32`, or calls something else.
pub fn called_slot(code: &[u8], text: usize, at: usize) -> Option<usize> {
    let decode = |at: usize| -> Option<Instruction> {
        let bytes = code.get(at.checked_sub(text)?..)?;
        let mut decoder = Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE);
        Some(decoder.decode())
    };
    let call = decode(at)?;
    let target = call.near_branch64() as usize;
    let mut jump = decode(target)?;
    if jump.code() == Code::Endbr64 {
        jump = decode(jump.next_ip() as usize)?;
    }
    let is_import = call.code() == Code::Call_rel32_64
        && call.len() == JUMP
        && jump.code() == Code::Jmp_rm64
        && jump.is_ip_rel_memory_operand();
    is_import.then(|| jump.ip_rel_memory_address() as usize)
}

/// Writes `jmp *0(%rip)`, followed by the address.
///
/// # Safety
/// There are 14 writable bytes at `at`.
pub unsafe fn write_stub(at: usize, hook: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping([0xff, 0x25, 0, 0, 0, 0].as_ptr(), at as *mut u8, 6);
        ((at + 6) as *mut usize).write_unaligned(hook);
    }
}

/// A jump from an address to another one, if it reaches so far.
pub fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    with_distance(0xe9, at, to)
}

/// A call, likewise.
pub fn call(at: usize, to: usize) -> Option<[u8; JUMP]> {
    with_distance(0xe8, at, to)
}

fn with_distance(opcode: u8, at: usize, to: usize) -> Option<[u8; JUMP]> {
    let distance = i32::try_from(to.wrapping_sub(at + JUMP).cast_signed())
        .ok()?
        .to_le_bytes();
    Some([opcode, distance[0], distance[1], distance[2], distance[3]])
}

#[cfg(test)]
mod tests;
