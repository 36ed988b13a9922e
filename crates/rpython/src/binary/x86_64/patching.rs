//! Changes functions and calls of a running interpreter, and restores them.

use std::ffi::c_int;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction,
    InstructionBlock, OpKind,
};
use nthbyte_host::BoundedLock;

use crate::binary::code_pages::{self, give_back, page_near, seal};
use crate::binary::function::Function;
use crate::binary::imports::Redirect;
use crate::binary::memory_map::MemoryMap;

/// Bytes of `jmp rel32` and of `call rel32`.
const JUMP: usize = 5;
/// The largest distance between the code and a page for it: a `jmp rel32` and relocated operands
/// must reach the page.
const REACH: usize = 0x7000_0000;
/// Offset in a detour's page of the stub that jumps to the hook. The moved instructions are at the page's
/// start.
const STUB: usize = 256;

const OUT_OF_REACH: &str = "no memory within reach of the code";

/// A function whose first instructions are replaced by a jump to a hook. Dropping this value changes
/// nothing: [`Detour::remove`] restores the instructions.
#[derive(Clone, Debug)]
pub struct Detour {
    target: usize,
    hook: usize,
    original: Vec<u8>,
    page: usize,
    /// The protection of the pages that the first instructions lie in.
    protection: c_int,
}

impl Detour {
    /// Prepares the page for the function at `target` in `code` (mapped at `text`), or reuses the page of an earlier
    /// session, even if that session could not remove its jump. The function is not changed until [`Detour::place`].
    ///
    /// # Errors
    /// One clause that says why this function cannot be hooked.
    pub fn prepare(
        code: &[u8],
        text: usize,
        target: usize,
        hook: usize,
        map: &MemoryMap,
    ) -> Result<Self, String> {
        static PREPARED: BoundedLock<Vec<Detour>> = BoundedLock::new(Vec::new());
        let bytes = target
            .checked_sub(text)
            .and_then(|at| code.get(at..))
            .unwrap_or_default();
        let mut prepared = PREPARED
            .lock()
            .ok_or("another thread holds the list of hooks")?;
        let mut alike = prepared.iter().filter(|detour| detour.target == target);
        let known = alike.find(|one| {
            let stayed = || one.jump().is_ok_and(|jump| bytes.starts_with(&jump));
            one.hook == hook && (bytes.starts_with(&one.original) || stayed())
        });
        if let Some(known) = known {
            return Ok(Self {
                protection: map.protection(target..target + known.original.len())?,
                ..known.clone()
            });
        }
        let detour = Self::new(code, text, bytes, target, hook, map)?;
        prepared.push(detour.clone());
        Ok(detour)
    }

    fn new(
        code: &[u8],
        text: usize,
        bytes: &[u8],
        target: usize,
        hook: usize,
        map: &MemoryMap,
    ) -> Result<Self, String> {
        let mut decoder = Decoder::with_ip(64, bytes, target as u64, DecoderOptions::NONE);
        let mut prologue = Vec::new();
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
                prologue.push(instruction);
            }
            length += instruction.len();
        }
        let overwritten = target + 1..target + length;
        if Function::decode(code, text, target)
            .targets
            .iter()
            .any(|to| overwritten.contains(to))
        {
            return Err("it jumps back into its first instructions".to_owned());
        }
        let protection = map.protection(target..target + length)?;
        let page = page_near(target, REACH)?;
        move_to(page, &prologue, bytes, target)
            // SAFETY: `page` is a fresh private writable page.
            .and_then(|copy| unsafe { fill(page, copy, target + length, hook) })
            .inspect_err(|_| give_back(page))?;
        Ok(Self {
            target,
            hook,
            original: bytes[..length].to_vec(),
            page,
            protection,
        })
    }

    /// The bytes that replace the first instructions.
    fn jump(&self) -> Result<Vec<u8>, String> {
        let jump = jump(self.target, self.page + STUB).ok_or(OUT_OF_REACH)?;
        let mut bytes = vec![0x90; self.original.len()];
        bytes[..JUMP].copy_from_slice(&jump);
        Ok(bytes)
    }

    /// The original function. The hook calls this address.
    #[must_use]
    pub const fn original(&self) -> usize {
        self.page
    }

    /// Writes the jump.
    ///
    /// # Safety
    /// No thread is at the replaced instructions, or returns to them. They are the first
    /// instructions of the function, so it is enough that no thread is about to enter it.
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn place(&self) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.target, &self.jump()?, self.protection) }
    }

    /// Restores the original instructions.
    ///
    /// # Safety
    /// As for [`Detour::place`].
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn remove(&self) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.target, &self.original, self.protection) }
    }

    /// Whether the code is as it was before [`Detour::place`].
    #[cfg(test)]
    fn is_removed(&self) -> bool {
        // SAFETY: the function's first instructions are mapped and readable.
        let now =
            unsafe { std::slice::from_raw_parts(self.target as *const u8, self.original.len()) };
        now == self.original
    }
}

/// A call of an imported function (`call rel32` to the function's stub in the library) that calls a hook for a while.
/// Other calls of the same function are not changed.
#[derive(Debug)]
pub struct CallSite {
    /// The call instruction.
    at: usize,
    original: [u8; JUMP],
    stub: usize,
    /// The protection of the pages that the call lies in.
    protection: c_int,
}

impl CallSite {
    /// The call with the return address `site` in `code` (mapped at `text`), prepared to call the replacement function
    /// of `redirects`, which contains its import slot. `None` if the instruction is another kind of call, or calls
    /// another function.
    #[must_use]
    pub fn prepare(
        code: &[u8],
        text: usize,
        site: usize,
        redirects: &[Redirect],
        map: &MemoryMap,
    ) -> Option<Self> {
        let decode = |at: usize| -> Option<Instruction> {
            let bytes = code.get(at.checked_sub(text)?..)?;
            let mut decoder = Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE);
            Some(decoder.decode())
        };
        let at = site.checked_sub(JUMP)?;
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
        let slot = jump.ip_rel_memory_address() as usize;
        let mut redirects = redirects.iter().filter(|_| is_import);
        let redirect = redirects.find(|redirect| redirect.slot as usize == slot)?;
        let original = code.get(at - text..site - text)?.try_into().ok()?;
        let stub = Self::stub(at, redirect.function)?;
        Some(Self {
            at,
            original,
            stub,
            protection: map.protection(at..site).ok()?,
        })
    }

    /// A stub that jumps to the hook, within reach of a call at `at`: the stub of an earlier call or
    /// session, or a new one.
    fn stub(at: usize, hook: usize) -> Option<usize> {
        static STUBS: BoundedLock<Vec<(usize, usize)>> = BoundedLock::new(Vec::new());
        let mut stubs = STUBS.lock()?;
        let mut known = stubs.iter().filter(|stub| stub.0 == hook);
        if let Some(&(_, stub)) = known.find(|stub| stub.1.abs_diff(at) < REACH) {
            return Some(stub);
        }
        let stub = page_near(at, REACH).ok()?;
        // SAFETY: `page_near` gave a new private writable page.
        unsafe { write_stub(stub, hook) };
        seal(stub).inspect_err(|_| give_back(stub)).ok()?;
        stubs.push((hook, stub));
        Some(stub)
    }

    /// Changes the call to call the hook.
    ///
    /// # Safety
    /// No thread is about to make the call. A thread may be inside the called function.
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn place(&self) -> Result<(), String> {
        let mut call = jump(self.at, self.stub).ok_or(OUT_OF_REACH)?;
        call[0] = self.original[0];
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.at, &call, self.protection) }
    }

    /// Restores the original call.
    ///
    /// # Safety
    /// As for [`CallSite::place`].
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn remove(&self) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.at, &self.original, self.protection) }
    }
}

/// Writes the moved instructions, the jump back to `back`, and the stub to a detour's page, and makes the page
/// executable.
///
/// # Safety
/// The page is writable.
unsafe fn fill(page: usize, mut copy: Vec<u8>, back: usize, hook: usize) -> Result<(), String> {
    copy.extend(jump(page + copy.len(), back).ok_or(OUT_OF_REACH)?);
    if copy.len() > STUB {
        return Err("its first instructions are too long".to_owned());
    }
    // SAFETY: both writes lie in the page.
    unsafe {
        std::ptr::copy_nonoverlapping(copy.as_ptr(), page as *mut u8, copy.len());
        write_stub(page + STUB, hook);
    }
    seal(page)
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

/// Writes `jmp *0(%rip)`, followed by the address.
///
/// # Safety
/// There are 14 writable bytes at `at`.
unsafe fn write_stub(at: usize, hook: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping([0xff, 0x25, 0, 0, 0, 0].as_ptr(), at as *mut u8, 6);
        ((at + 6) as *mut usize).write_unaligned(hook);
    }
}

fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    let distance = i32::try_from(to.wrapping_sub(at + JUMP).cast_signed())
        .ok()?
        .to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

#[cfg(test)]
mod tests;
