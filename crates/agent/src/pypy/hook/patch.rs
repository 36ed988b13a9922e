//! Changing code and import slots of a running interpreter, and changing them back.

use std::ffi::c_void;
use std::io;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, InstructionBlock,
};

use super::flow::Function;

/// `jmp rel32`.
const JUMP: usize = 5;
/// One page holds a detour's trampolines.
const PAGE: usize = 4096;
/// How far from the function the page may lie: a `jmp rel32` and relocated operands must reach.
const REACH: usize = 0x7000_0000;
/// Where in the page the stub lies that goes to the hook; the relocated prologue is at its start.
const STUB: usize = 256;

/// A function whose first instructions are replaced by a jump to a hook. Dropping it leaves the jump
/// in place; [`Detour::remove`] takes it out.
#[derive(Debug)]
pub struct Detour {
    target: usize,
    original: Vec<u8>,
    page: usize,
}

impl Detour {
    /// Prepares the trampolines for the function at `target` in `code` (mapped at `text`): nothing
    /// changes until [`Detour::place`].
    ///
    /// # Errors
    /// One clause that says why this function cannot be hooked.
    pub fn prepare(code: &[u8], text: usize, target: usize, hook: usize) -> Result<Self, String> {
        let bytes = target
            .checked_sub(text)
            .and_then(|at| code.get(at..))
            .unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, target as u64, DecoderOptions::NONE);
        let mut prologue = Vec::new();
        let mut length = 0;
        while length < JUMP {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err("its first instructions could not be decoded".to_owned());
            }
            // `endbr64` may stay out of the copy: the trampoline is reached by direct jumps and calls only.
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
        let page = page_near(target)?;
        let block = InstructionBlock::new(&prologue, page as u64);
        let mut copy = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
            .map_err(|error| format!("its first instructions could not be moved: {error}"))?
            .code_buffer;
        let back = page + copy.len();
        copy.extend(jump(back, target + length).ok_or("no memory within reach of the code")?);
        if copy.len() > STUB {
            return Err("its first instructions are too long".to_owned());
        }
        // SAFETY: `page` is a fresh private writable page; both writes lie in it.
        unsafe {
            std::ptr::copy_nonoverlapping(copy.as_ptr(), page as *mut u8, copy.len());
            // jmp *0(%rip), followed by the address.
            let stub = (page + STUB) as *mut u8;
            std::ptr::copy_nonoverlapping([0xff, 0x25, 0, 0, 0, 0].as_ptr(), stub, 6);
            stub.add(6).cast::<usize>().write_unaligned(hook);
        }
        protect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC).map_err(|error| refused(&error))?;
        Ok(Self {
            target,
            original: bytes[..length].to_vec(),
            page,
        })
    }

    /// The function as it was: call this from the hook.
    #[must_use]
    pub const fn original(&self) -> usize {
        self.page
    }

    /// Puts the jump in.
    ///
    /// # Safety
    /// No thread may be at, or return to, the replaced instructions: they are the first ones of the
    /// function, so it is enough that no thread is about to enter it.
    ///
    /// # Errors
    /// One clause, if the system does not let code be changed.
    pub unsafe fn place(&self) -> Result<(), String> {
        let mut bytes = vec![0x90; self.original.len()];
        let jump =
            jump(self.target, self.page + STUB).ok_or("no memory within reach of the code")?;
        bytes[..JUMP].copy_from_slice(&jump);
        // SAFETY: passed on to the caller.
        unsafe { self.write(&bytes) }
    }

    /// Puts the original instructions back.
    ///
    /// # Safety
    /// As for [`Detour::place`].
    ///
    /// # Errors
    /// One clause, if the system does not let code be changed.
    pub unsafe fn remove(&self) -> Result<(), String> {
        // SAFETY: passed on to the caller.
        unsafe { self.write(&self.original) }
    }

    /// Whether the code is as it was before [`Detour::place`].
    #[cfg(test)]
    fn is_removed(&self) -> bool {
        // SAFETY: the function's first instructions are mapped and readable.
        let now =
            unsafe { std::slice::from_raw_parts(self.target as *const u8, self.original.len()) };
        now == self.original
    }

    unsafe fn write(&self, bytes: &[u8]) -> Result<(), String> {
        let writable = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        protect(self.target, bytes.len(), writable).map_err(|error| refused(&error))?;
        // SAFETY: the pages were made writable, and nobody executes these bytes (the caller's promise).
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.target as *mut u8, bytes.len())
        };
        protect(self.target, bytes.len(), libc::PROT_READ | libc::PROT_EXEC)
            .map_err(|error| refused(&error))
    }
}

/// An import slot that holds another function's address for a while.
#[derive(Debug)]
pub struct Redirect {
    slot: *mut usize,
    before: usize,
}

// SAFETY: a slot belongs to no thread; it is written atomically.
unsafe impl Send for Redirect {}

impl Redirect {
    /// Makes a slot point to `function`.
    ///
    /// # Errors
    /// One clause, if the slot cannot be written.
    ///
    /// # Safety
    /// `slot` is an import slot of a loaded library and `function` has the type that it is called with.
    pub unsafe fn place(slot: *mut usize, function: usize) -> Result<Self, String> {
        // SAFETY: the slot is mapped and aligned (the caller's promise).
        let before = unsafe { slot.read_volatile() };
        // SAFETY: passed on to the caller.
        unsafe { store(slot, function) }?;
        Ok(Self { slot, before })
    }

    /// Puts the slot back as it was.
    ///
    /// # Errors
    /// One clause, if the slot cannot be written.
    pub fn remove(&self) -> Result<(), String> {
        // SAFETY: `place` wrote to this slot; it gets back what it held.
        unsafe { store(self.slot, self.before) }
    }
}

/// Writes a slot, which the loader may have made read-only after it filled it. Other threads may call
/// through it meanwhile: they see the old address or the new one.
unsafe fn store(slot: *mut usize, value: usize) -> Result<(), String> {
    let refused = |error: &io::Error| format!("the import table may not be changed ({error})");
    protect(slot as usize, 8, libc::PROT_READ | libc::PROT_WRITE)
        .map_err(|error| refused(&error))?;
    // SAFETY: the slot is mapped, aligned and writable now.
    unsafe { std::sync::atomic::AtomicUsize::from_ptr(slot) }
        .store(value, std::sync::atomic::Ordering::SeqCst);
    // The page stays writable: the lazy binding of other threads may be filling slots beside this one.
    Ok(())
}

fn refused(error: &io::Error) -> String {
    format!("this system does not let code pages be changed ({error})")
}

fn jump(at: usize, to: usize) -> Option<[u8; JUMP]> {
    let distance = i32::try_from(to.wrapping_sub(at + JUMP).cast_signed())
        .ok()?
        .to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

fn protect(address: usize, length: usize, protection: i32) -> io::Result<()> {
    let start = address & !(PAGE - 1);
    let length = (address + length).next_multiple_of(PAGE) - start;
    // SAFETY: changes the protection of whole pages that hold the given range, which is mapped.
    match unsafe { libc::mprotect(start as *mut c_void, length, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A fresh page that a `jmp rel32` at `target` reaches. It is never unmapped: a thread may still be
/// on its way through it when the hook is removed.
fn page_near(target: usize) -> Result<usize, String> {
    let hint = target & !(PAGE - 1);
    for step in (0x10_0000..REACH).step_by(0x10_0000) {
        for at in [hint.checked_sub(step), hint.checked_add(step)]
            .into_iter()
            .flatten()
        {
            // SAFETY: asks for fresh memory and replaces none (MAP_FIXED_NOREPLACE).
            let page = unsafe {
                libc::mmap(
                    at as *mut c_void,
                    PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if page == libc::MAP_FAILED {
                continue;
            }
            if page as usize == at {
                return Ok(at);
            }
            // SAFETY: an old kernel took the address as a hint; the page is ours and unused.
            unsafe { libc::munmap(page, PAGE) };
        }
    }
    Err("no memory within reach of the code".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn victim(number: u64) -> u64 {
        std::hint::black_box(number).wrapping_mul(3) + std::hint::black_box(1)
    }

    extern "C" fn hook(number: u64) -> u64 {
        ORIGINAL.get().map_or(0, |original| original(number) + 1000)
    }

    static ORIGINAL: std::sync::OnceLock<extern "C" fn(u64) -> u64> = std::sync::OnceLock::new();

    #[test]
    fn a_detour_calls_the_original_and_leaves_no_trace() {
        let target = victim as *const () as usize;
        // SAFETY: a function's code and what follows it in the same executable segment, read only.
        let code = unsafe { std::slice::from_raw_parts(target as *const u8, 64) };
        let detour = Detour::prepare(code, target, target, hook as *const () as usize).unwrap();
        // SAFETY: the trampoline continues with the function of this type.
        let original =
            unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(detour.original()) };
        ORIGINAL.set(original).unwrap();
        let call = std::hint::black_box(victim as extern "C" fn(u64) -> u64);
        assert_eq!(call(2), 7);
        // SAFETY: no other test calls the function.
        unsafe { detour.place() }.unwrap();
        assert!(!detour.is_removed());
        assert_eq!(call(2), 1007);
        // SAFETY: as above.
        unsafe { detour.remove() }.unwrap();
        assert!(detour.is_removed());
        assert_eq!(call(2), 7);
    }

    #[test]
    fn a_jump_into_the_replaced_bytes_is_refused() {
        // nop; nop; nop; dec edi; jnz -4 (to the third byte); ret
        let code = [
            0x90, 0x90, 0x90, 0xff, 0xcf, 0x75, 0xfb, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
            0xcc, 0xcc,
        ];
        let at = code.as_ptr() as usize;
        let refused = Detour::prepare(&code, at, at, 0).unwrap_err();
        assert!(refused.contains("jumps back"), "{refused}");
    }
}
