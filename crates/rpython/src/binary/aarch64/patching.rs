//! Jumps, and the instruction that a detour moves.
//!
//! Each change is of one instruction, so a thread that executes it meanwhile sees the old one or the new one.

use super::instruction::{Instruction, word};

/// Bytes of `b` and of `bl`.
pub const JUMP: usize = 4;
/// The largest distance between the code and a page for it: `b` and `bl` reach 128 MiB.
pub const REACH: usize = 127 << 20;
/// A jump leaves nothing of the instruction that it replaces.
pub const FILLER: u8 = 0;

const BRANCH: u32 = 0x1400_0000;
const CALL: u32 = 0x9400_0000;
/// `bti c`, which code may begin with that is called through a register.
const LANDING: u32 = 0xd503_245f;
/// `ldr x16, 8; br x16`, followed by an address. x16 is free at the beginning of a function.
const STUB_CODE: [u32; 2] = [0x5800_0050, 0xd61f_0200];

/// The first instruction of a function, which a jump replaces.
pub struct First(u32);

impl First {
    /// Of the function at `target` in `code`, which is mapped at `text`.
    ///
    /// # Errors
    /// One clause, if it cannot be replaced.
    pub fn read(code: &[u8], text: usize, target: usize) -> Result<Self, String> {
        let first = target.checked_sub(text).and_then(|at| word(code, at));
        let first = first.ok_or("it lies outside of the code")?;
        if !is_movable(first) {
            return Err(
                "its first instruction cannot be moved, or it is hooked already".to_owned(),
            );
        }
        Ok(Self(first))
    }

    /// The bytes of the instruction.
    pub const fn length(&self) -> usize {
        JUMP
    }

    /// Its machine code at `page`: the same everywhere.
    ///
    /// # Errors
    /// None.
    pub fn moved_to(&self, _page: usize) -> Result<Vec<u8>, String> {
        Ok(self.0.to_le_bytes().to_vec())
    }
}

/// Whether an instruction begins a function, and does the same elsewhere: it signs the return address, or makes room on the stack. So no
/// function jumps back to it.
const fn is_movable(word: u32) -> bool {
    // `hint`: `paciasp`, `pacibsp`, `bti`, `nop`.
    word & 0xffff_f01f == 0xd503_201f
        // `stp …, …, [sp, #…]!`, `str …, [sp, #…]!`, `sub sp, sp, #…`
        || word & 0xffc0_03e0 == 0xa980_03e0
        || word & 0xffe0_0fe0 == 0xf800_0fe0
        || word & 0xff80_03ff == 0xd100_03ff
}

/// The import slot whose function the instruction at `at` in `code` calls, by the function's stub in the library. `None` if
/// it is another instruction than `bl`, or calls something else.
pub fn called_slot(code: &[u8], text: usize, at: usize) -> Option<usize> {
    let read = |at: usize| word(code, at.checked_sub(text)?);
    let Instruction::Call(mut target) = Instruction::decode(read(at)?, at) else {
        return None;
    };
    if read(target)? == LANDING {
        target += 4;
    }
    // `adrp x16, page; ldr x17, [x16, #offset]; add x16, …; br x17`
    let next = |target: usize| Some(Instruction::decode(read(target)?, target));
    match (next(target)?, next(target + 4)?) {
        (Instruction::Set(16, page), Instruction::Load(17, 16, offset)) => Some(page + offset),
        _ => None,
    }
}

/// Writes a jump to any address.
///
/// # Safety
/// There are 16 writable bytes at `at`, which is a multiple of 8.
pub unsafe fn write_stub(at: usize, hook: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        (at as *mut [u32; 2]).write(STUB_CODE);
        ((at + 8) as *mut usize).write(hook);
    }
}

/// A jump from an address to another one, if it reaches so far.
pub fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    with_distance(BRANCH, at, to)
}

/// A call, likewise.
pub fn call(at: usize, to: usize) -> Option<[u8; JUMP]> {
    with_distance(CALL, at, to)
}

fn with_distance(instruction: u32, at: usize, to: usize) -> Option<[u8; JUMP]> {
    let distance = to.wrapping_sub(at).cast_signed();
    let is_near = distance % 4 == 0 && (-(1 << 27)..1 << 27).contains(&distance);
    is_near.then(|| (instruction | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes())
}

#[cfg(test)]
mod tests;
