//! Changes functions and calls of a running interpreter, and restores them.
//!
//! Each change is of one instruction, so a thread that executes it meanwhile sees the old one or the new one.

use std::ffi::c_int;

use nthbyte_host::BoundedLock;

use super::instruction::{Instruction, word};
use crate::binary::code_pages::{self, give_back, page_near, seal};
use crate::binary::imports::Redirect;
use crate::binary::memory_map::MemoryMap;

/// The largest distance between the code and a page for it: `b` and `bl` reach 128 MiB.
const REACH: usize = 127 << 20;
/// Offset in a detour's page of the stub that jumps to the hook. The moved instruction is at the page's start.
const STUB: usize = 64;

const OUT_OF_REACH: &str = "no memory within reach of the code";

const BRANCH: u32 = 0x1400_0000;
const CALL: u32 = 0x9400_0000;
/// `bti c`, which code may begin with that is called through a register.
const LANDING: u32 = 0xd503_245f;
/// `ldr x16, 8; br x16`, followed by an address. x16 is free at the beginning of a function.
const STUB_CODE: [u32; 2] = [0x5800_0050, 0xd61f_0200];

/// A function whose first instruction is replaced by a jump to a hook. Dropping this value changes
/// nothing: [`Detour::remove`] restores the instruction.
#[derive(Clone, Copy, Debug)]
pub struct Detour {
    target: usize,
    hook: usize,
    original: u32,
    page: usize,
    /// The protection of the page that the first instruction lies in.
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
        let first = target
            .checked_sub(text)
            .and_then(|at| word(code, at))
            .ok_or("it lies outside of the code")?;
        let protection = map.protection(target..target + 4)?;
        let mut prepared = PREPARED
            .lock()
            .ok_or("another thread holds the list of hooks")?;
        let mut alike = prepared
            .iter()
            .filter(|one| one.target == target && one.hook == hook);
        if let Some(known) =
            alike.find(|one| one.original == first || one.jump().is_ok_and(|jump| jump == first))
        {
            return Ok(Self {
                protection,
                ..*known
            });
        }
        let detour = Self::new(first, target, hook, protection)?;
        prepared.push(detour);
        Ok(detour)
    }

    fn new(first: u32, target: usize, hook: usize, protection: c_int) -> Result<Self, String> {
        if !is_movable(first) {
            return Err(
                "its first instruction cannot be moved, or it is hooked already".to_owned(),
            );
        }
        let page = page_near(target, REACH)?;
        let fill = || {
            let back = to(BRANCH, page + 4, target + 4).ok_or(OUT_OF_REACH)?;
            // SAFETY: `page` is a fresh private writable page, and all words lie in it.
            unsafe {
                (page as *mut u32).write(first);
                ((page + 4) as *mut u32).write(back);
                write_stub(page + STUB, hook);
            }
            seal(page)
        };
        fill().inspect_err(|_| give_back(page))?;
        Ok(Self {
            target,
            hook,
            original: first,
            page,
            protection,
        })
    }

    /// The instruction that replaces the first one.
    fn jump(&self) -> Result<u32, String> {
        Ok(to(BRANCH, self.target, self.page + STUB).ok_or(OUT_OF_REACH)?)
    }

    /// The original function. The hook calls this address.
    #[must_use]
    pub const fn original(&self) -> usize {
        self.page
    }

    /// Writes the jump.
    ///
    /// # Safety
    /// No thread is about to enter the function.
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn place(&self) -> Result<(), String> {
        let jump = self.jump()?.to_le_bytes();
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.target, &jump, self.protection) }
    }

    /// Restores the original instruction.
    ///
    /// # Safety
    /// As for [`Detour::place`].
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub unsafe fn remove(&self) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.target, &self.original.to_le_bytes(), self.protection) }
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

/// A call of an imported function (`bl` to the function's stub in the library) that calls a hook for a while.
/// Other calls of the same function are not changed.
#[derive(Debug)]
pub struct CallSite {
    /// The call instruction.
    at: usize,
    original: u32,
    stub: usize,
    /// The protection of the page that the call lies in.
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
        let at = site.checked_sub(4)?;
        let read = |at: usize| word(code, at.checked_sub(text)?);
        let original = read(at)?;
        let Instruction::Call(mut target) = Instruction::decode(original, at) else {
            return None;
        };
        if read(target)? == LANDING {
            target += 4;
        }
        // `adrp x16, page; ldr x17, [x16, #offset]; add x16, …; br x17`
        let next = |target: usize| Some(Instruction::decode(read(target)?, target));
        let (Instruction::Set(16, page), Instruction::Load(17, 16, offset)) =
            (next(target)?, next(target + 4)?)
        else {
            return None;
        };
        let mut redirects = redirects.iter();
        let redirect = redirects.find(|redirect| redirect.slot as usize == page + offset)?;
        Some(Self {
            at,
            original,
            stub: Self::stub(at, redirect.function)?,
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
        let call = to(CALL, self.at, self.stub).ok_or(OUT_OF_REACH)?;
        // SAFETY: the caller's promise.
        unsafe { code_pages::write(self.at, &call.to_le_bytes(), self.protection) }
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
        unsafe { code_pages::write(self.at, &self.original.to_le_bytes(), self.protection) }
    }
}

/// Writes a jump to any address.
///
/// # Safety
/// There are 16 writable bytes at `at`, which is a multiple of 8.
unsafe fn write_stub(at: usize, hook: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        (at as *mut [u32; 2]).write(STUB_CODE);
        ((at + 8) as *mut usize).write(hook);
    }
}

/// A branch or a call from an address to another one, if it reaches so far.
fn to(instruction: u32, from: usize, to: usize) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed();
    let is_near = distance % 4 == 0 && (-(1 << 27)..1 << 27).contains(&distance);
    is_near.then(|| instruction | (distance >> 2) as u32 & 0x03ff_ffff)
}

#[cfg(test)]
mod tests;
