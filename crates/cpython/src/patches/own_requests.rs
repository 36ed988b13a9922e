//! The interpreter's own requests of the domain `MEM` above 512 bytes, which the heap serves.
//!
//! - What: not a patch, but a setting of the heap ([`nthbyte_heap::Config::trusts`]).
//! - Installed: with the heap.
//! - Removed: never.
//!
//! The heap leaves such requests to the C library, because extensions make them without the GIL, or give such blocks to
//! `free`. The interpreter does neither: its tests run with debug hooks, which end the process in both cases. So the
//! heap serves a call of `PyMem_Malloc`, `PyMem_Calloc` or `PyMem_Realloc` in the interpreter's own code: the items of a
//! list, the stack of a regular expression. The return address shows the call. Code counts as the interpreter's if it is
//! in the image that has these functions; so does an application that has the interpreter in itself.
//!
//! A return address in that image is not enough. It may be in `PyMem_Malloc`, where the compiler made no jump of its
//! last call, or in a function that stands before the heap's, as those of `tracemalloc` and of the debug hooks do. Both
//! pass on requests of extensions. So the instruction before the return address must call one of the three functions by
//! its address, or through the procedure linkage table. Code with the functions inlined calls through CPython's table
//! of allocators, and is not recognised.
//!
//! Only x86-64 instructions are known. On other processors the C library serves such requests.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_heap::Trusts;
use nthbyte_session::process::{Segment, for_each_segment, image};

use crate::api::Api;

/// The image of the interpreter. It never changes.
struct Interpreter {
    code: Range<usize>,
    /// The segment with the addresses of functions that the code calls indirectly.
    data: Range<usize>,
    /// The functions that request memory of the domain `MEM`.
    functions: [usize; 3],
}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();

/// Return addresses that were recognised, each at a place that its bits choose.
static KNOWN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// The longest entry of a procedure linkage table: `endbr64`, `bnd jmp`.
const LONGEST_STUB: usize = 11;

/// The check, if the interpreter's code can be recognised.
#[must_use]
pub fn check(api: &Api) -> Option<Trusts> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let interpreter = Interpreter::find(api.memory_functions())?;
    INTERPRETER.get_or_init(|| interpreter);
    Some(is_own)
}

/// Whether a call that returns to `site` is one of the interpreter's own. Costs about 12 instructions for a site that is
/// known.
#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn is_own(site: usize) -> bool {
    let known = &KNOWN[(site ^ site >> 6) % KNOWN.len()];
    if known.load(Relaxed) == site && site != 0 {
        return true;
    }
    // SAFETY: the image of the interpreter is never unloaded.
    let is_own = INTERPRETER
        .get()
        .is_some_and(|interpreter| unsafe { interpreter.calls(site) });
    if is_own {
        known.store(site, Relaxed);
    }
    is_own
}

impl Interpreter {
    /// The image with these functions.
    fn find(functions: [usize; 3]) -> Option<Self> {
        let [start, end] = image::range(functions[0]);
        let (mut code, mut data) = (0..0, 0..0);
        for_each_segment(&mut |Segment {
                                   pages,
                                   is_writable,
                                   is_code,
                                   ..
                               }| {
            if is_code && pages.contains(&functions[0]) {
                code = pages;
            } else if is_writable
                && start < pages.end
                && pages.start < end
                && pages.len() > data.len()
            {
                data = pages;
            }
        });
        functions
            .iter()
            .all(|function| code.contains(function))
            .then_some(Self {
                code,
                data,
                functions,
            })
    }

    /// Whether the instruction before `site` is in this image, and calls one of the functions.
    ///
    /// # Safety
    /// The code and the data can be read.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn calls(&self, site: usize) -> bool {
        // The longest instruction, and the longest entry of a procedure linkage table, end before the code does.
        let Range { start, end } = self.code;
        let inside = start + 6..end.saturating_sub(LONGEST_STUB);
        if !inside.contains(&site) {
            return false;
        }
        // SAFETY: by the contract, and the range.
        unsafe {
            // call [rip + offset]
            if code::<2>(site - 6) == [0xff, 0x15] {
                return self.holds_function(relative(site));
            }
            // call offset
            if code::<1>(site - 5) != [0xe8] {
                return false;
            }
            let target = relative(site);
            self.functions.contains(&target)
                || inside.contains(&target) && self.jumps_to_function(target)
        }
    }

    /// Whether there is an entry of a procedure linkage table that jumps to one of the functions.
    ///
    /// # Safety
    /// As for `calls`; the longest entry fits into the code.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn jumps_to_function(&self, mut at: usize) -> bool {
        // SAFETY: by the contract.
        unsafe {
            // endbr64
            if code::<4>(at) == [0xf3, 0x0f, 0x1e, 0xfa] {
                at += 4;
            }
            // bnd
            if code::<1>(at) == [0xf2] {
                at += 1;
            }
            // jmp [rip + offset]
            code::<2>(at) == [0xff, 0x25] && self.holds_function(relative(at + 6))
        }
    }

    /// Whether a word of the image's data is the address of one of the functions.
    ///
    /// # Safety
    /// As for `calls`.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn holds_function(&self, address: usize) -> bool {
        let Range { start, end } = self.data;
        (start..end.saturating_sub(7)).contains(&address)
            // SAFETY: the word is in the data.
            && self.functions.contains(&unsafe { (address as *const usize).read_unaligned() })
    }
}

/// The bytes of an instruction.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn code<const LENGTH: usize>(at: usize) -> [u8; LENGTH] {
    // SAFETY: by the contract.
    unsafe { (at as *const [u8; LENGTH]).read() }
}

/// The address that an instruction refers to by the offset in its last four bytes.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn relative(end: usize) -> usize {
    // SAFETY: by the contract.
    let offset = i32::from_le_bytes(unsafe { code::<4>(end - 4) });
    end.wrapping_add_signed(offset as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [usize; 3] = [0x40, 0x48, 0x50];
    /// Where the tests place a stub, and the word with a function's address.
    const STUB: usize = 0x60;
    const SLOT: usize = 0x80;

    /// Whether a call is recognised. The code is followed by the data.
    fn is_recognised(call: &[u8], stub: &[u8], target: usize, slot: usize) -> bool {
        #[repr(align(16))]
        struct Image([u8; 0xa0]);
        let mut image = Image([0x90; 0xa0]);
        let base = image.0.as_ptr() as usize;
        let site = 0x10 + call.len() + 4;
        let mut put = |at: usize, bytes: &[u8]| image.0[at..][..bytes.len()].copy_from_slice(bytes);
        put(0x10, call);
        put(site - 4, &(target as i32 - site as i32).to_le_bytes());
        put(STUB, stub);
        let end = STUB + stub.len() + 4;
        put(end - 4, &(SLOT as i32 - end as i32).to_le_bytes());
        put(SLOT, &(base + slot).to_le_bytes());
        let interpreter = Interpreter {
            code: base..base + 0x80,
            data: base + 0x80..base + 0xa0,
            functions: FUNCTIONS.map(|function| base + function),
        };
        // SAFETY: the image is readable.
        unsafe { interpreter.calls(base + site) }
    }

    const CALL: &[u8] = &[0xe8];
    const CALL_SLOT: &[u8] = &[0xff, 0x15];
    const JUMP: &[u8] = &[0xff, 0x25];
    const GUARDED_JUMP: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25];

    #[test]
    fn calls_of_the_functions_are_recognised() {
        for function in FUNCTIONS {
            assert!(is_recognised(CALL, JUMP, function, 0));
            assert!(is_recognised(CALL_SLOT, JUMP, SLOT, function));
            assert!(is_recognised(CALL, JUMP, STUB, function));
            assert!(is_recognised(CALL, GUARDED_JUMP, STUB, function));
            assert!(is_recognised(
                CALL,
                &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25],
                STUB,
                function
            ));
        }
    }

    #[test]
    fn other_calls_are_not() {
        let [function, ..] = FUNCTIONS;
        // Of another function, directly and by a stub or a slot; through a register that holds an address.
        assert!(!is_recognised(CALL, JUMP, function + 1, 0));
        assert!(!is_recognised(CALL, JUMP, STUB, function + 1));
        assert!(!is_recognised(CALL_SLOT, JUMP, SLOT, function + 1));
        assert!(!is_recognised(&[0xff, 0x90], JUMP, SLOT, function));
        // A target outside of the code, and a slot outside of the data.
        assert!(!is_recognised(CALL, JUMP, 0x4000_0000, function));
        assert!(!is_recognised(CALL_SLOT, JUMP, 0x4000_0000, function));
        // A jump is no call.
        assert!(!is_recognised(&[0xe9], JUMP, function, 0));
    }

    #[test]
    fn other_images_are_not_the_interpreter() {
        let interpreter = Interpreter {
            code: 0x1000..0x2000,
            data: 0..0,
            functions: [0x1500; 3],
        };
        for site in [0, 6, 0xfff, 0x1005, 0x1ffa, 0x2000, usize::MAX] {
            // SAFETY: nothing is read outside of the code, and nothing in it this close to its ends.
            assert!(!unsafe { interpreter.calls(site) });
        }
    }

    #[test]
    fn finds_the_image_of_a_function() {
        let function = Interpreter::find as fn([usize; 3]) -> Option<Interpreter> as usize;
        let found = Interpreter::find([function; 3]).expect("this program");
        assert!(found.code.contains(&function));
        assert!(found.data.contains(&(KNOWN.as_ptr() as usize)));
        assert!(Interpreter::find([function, 8, 8]).is_none());
        assert!(Interpreter::find([8; 3]).is_none());
    }
}
