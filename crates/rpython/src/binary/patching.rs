//! Changes functions and calls of a running interpreter, and restores them.
//!
//! What an instruction looks like is the processor's: `architecture::patching` has the jumps, and says which instructions can
//! lie elsewhere.

use std::ffi::c_int;

use nthbyte_host::BoundedLock;

use super::architecture::patching::{
    self as processor, FILLER, First, JUMP, REACH, called_slot, write_stub,
};
use super::code_pages::{self, give_back, page_near, seal};
use super::imports::Redirect;
use super::memory_map::MemoryMap;

/// Offset in a detour's page of the stub that jumps to the hook. The moved instructions are at the page's start.
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
    pub(super) protection: c_int,
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
        let first = First::read(code, text, target)?;
        let original = bytes
            .get(..first.length())
            .ok_or("it lies outside of the code")?;
        let protection = map.protection(target..target + original.len())?;
        let page = page_near(target, REACH)?;
        // SAFETY: `page` is a fresh private writable page.
        unsafe { fill(page, &first, target, hook) }.inspect_err(|_| give_back(page))?;
        let detour = Self {
            target,
            hook,
            original: original.to_vec(),
            page,
            protection,
        };
        prepared.push(detour.clone());
        Ok(detour)
    }

    /// The bytes that replace the first instructions.
    fn jump(&self) -> Result<Vec<u8>, String> {
        let jump = processor::jump(self.target, self.page + STUB).ok_or(OUT_OF_REACH)?;
        let mut bytes = vec![FILLER; self.original.len()];
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
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(super) fn is_removed(&self) -> bool {
        // SAFETY: the function's first instructions are mapped and readable.
        let now =
            unsafe { std::slice::from_raw_parts(self.target as *const u8, self.original.len()) };
        now == self.original
    }
}

/// Writes the moved instructions of the function at `target`, the jump back, and the stub to a detour's page, and makes the
/// page executable.
///
/// # Safety
/// The page is writable.
unsafe fn fill(page: usize, first: &First, target: usize, hook: usize) -> Result<(), String> {
    let mut copy = first.moved_to(page)?;
    let back = processor::jump(page + copy.len(), target + first.length());
    copy.extend(back.ok_or(OUT_OF_REACH)?);
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

/// A call of an imported function (of the function's stub in the library) that calls a hook for a while.
/// Other calls of the same function are not changed.
#[derive(Debug)]
pub struct CallSite {
    /// The call instruction.
    at: usize,
    original: [u8; JUMP],
    pub(super) stub: usize,
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
        let at = site.checked_sub(JUMP)?;
        let slot = called_slot(code, text, at)?;
        let mut redirects = redirects.iter();
        let redirect = redirects.find(|redirect| redirect.slot as usize == slot)?;
        Some(Self {
            at,
            original: code.get(at - text..site - text)?.try_into().ok()?,
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
        let call = processor::call(self.at, self.stub).ok_or(OUT_OF_REACH)?;
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
