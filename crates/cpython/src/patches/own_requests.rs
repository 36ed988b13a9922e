//! The interpreter's own requests of the domain `MEM` above 512 bytes, which the heap serves.
//!
//! - What: not a patch, but a setting of the heap ([`nthbyte_heap::HeapConfig::trusts`]).
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
//! last call, or in a function that stands before the heap's, as `tracemalloc`'s and the debug hooks' do. Both pass on
//! requests of extensions. So one of two conditions must hold, too:
//!
//! - The instruction before the return address calls one of the three functions by its address, or through the procedure
//!   linkage table.
//! - CPython's table of allocators has the heap's function at this moment, and the three functions jump to it. Then code
//!   that has them inlined is recognised, too: optimised builds have many such places. The code of `PyMem_Malloc` shows
//!   where the table is, and [`find_table`] makes requests from here to see that they do not pass for the interpreter's.
//!
//! Only x86-64 instructions are known. On other processors the C library serves such requests.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_heap::{BlockDomain, DomainFunctions, Heap, Trusts};
use nthbyte_host::process::{Segment, for_each_segment, image};

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

/// The address of the word with the function `malloc` in CPython's table of allocators; 0 if it is not known, or the
/// second condition does not hold.
static TABLE: AtomicUsize = AtomicUsize::new(0);

/// Return addresses that were recognised, each at a place that its bits choose.
static KNOWN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Return addresses this close to the start of one of the functions are not taken for other code's.
const LONGEST_FUNCTION: usize = 1024;

/// In the first bytes of `PyMem_Malloc`, an instruction refers to the table.
const BEGINNING: usize = 64;

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

/// Finds CPython's table of allocators, so that inlined requests are recognised. Call this when the heap is in place.
///
/// # Safety
/// The GIL is held, and `heap` is the heap whose functions are in place.
pub unsafe fn find_table(heap: *mut c_void) {
    let Some(interpreter) = INTERPRETER.get() else {
        return;
    };
    // SAFETY: the image of the interpreter is never unloaded.
    let Some(table) = (unsafe { interpreter.find_table(heap) }) else {
        return;
    };
    TABLE.store(table, Relaxed);
    // SAFETY: by the contract.
    if !unsafe { are_told_apart(interpreter, heap) } {
        TABLE.store(0, Relaxed);
    }
}

/// Whether the fallback serves requests that code outside of the interpreter makes: this code.
///
/// # Safety
/// As for [`find_table`].
unsafe fn are_told_apart(interpreter: &Interpreter, heap: *mut c_void) -> bool {
    type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
    type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    const SIZE: usize = 600;
    let [malloc, calloc, realloc] = interpreter.functions;
    // SAFETY: by the contract. The functions have these types; each block is freed once.
    unsafe {
        let malloc = std::mem::transmute::<usize, Malloc>(malloc);
        let calloc = std::mem::transmute::<usize, Calloc>(calloc);
        let realloc = std::mem::transmute::<usize, Realloc>(realloc);
        let is_foreign = |block: *mut c_void| {
            let is_foreign = !Heap::owns(heap.cast(), block);
            (DomainFunctions::of(BlockDomain::Memory).free)(heap, block);
            is_foreign
        };
        // Optimised builds have code of its own for frequent sizes of an element.
        let sizes = [1, 2, 4].into_iter().chain((8..=256).step_by(8));
        is_foreign(malloc(SIZE))
            && is_foreign(realloc(null_mut(), SIZE))
            && is_foreign(realloc(malloc(16), SIZE))
            && sizes
                .map(|size| calloc(SIZE.div_ceil(size), size))
                .all(is_foreign)
    }
}

/// Whether a call that returns to `site` is one of the interpreter's own. Costs about 15 instructions.
#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn is_own(site: usize) -> bool {
    let Some(interpreter) = INTERPRETER.get() else {
        return false;
    };
    if !interpreter.code.contains(&site) {
        return false;
    }
    let table = TABLE.load(Relaxed);
    // SAFETY: the table is a variable of the interpreter, which is never unloaded.
    if table != 0 && unsafe { has_own_function(table) } && !interpreter.is_near_function(site) {
        return true;
    }
    let known = &KNOWN[(site ^ site >> 6) % KNOWN.len()];
    if known.load(Relaxed) == site {
        return true;
    }
    // SAFETY: as above.
    let is_own = unsafe { interpreter.calls(site) };
    if is_own {
        known.store(site, Relaxed);
    }
    is_own
}

/// Whether this word has the address of the heap's function.
///
/// # Safety
/// It can be read.
#[inline(always)]
unsafe fn has_own_function(table: usize) -> bool {
    // SAFETY: by the contract. Other threads may write to it.
    let function = unsafe { AtomicUsize::from_ptr(table as *mut usize) }.load(Relaxed);
    function == DomainFunctions::of(BlockDomain::Memory).malloc as usize
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

    /// The word with `malloc` in the table of allocators: an instruction in the beginning of `PyMem_Malloc` refers to it.
    ///
    /// # Safety
    /// The code and the data can be read. `heap` is the context that stands before the function.
    unsafe fn find_table(&self, heap: *mut c_void) -> Option<usize> {
        let [malloc, ..] = self.functions;
        if malloc + BEGINNING > self.code.end {
            return None;
        }
        let words = self.data.start + size_of::<usize>()..self.data.end;
        (malloc + 4..=malloc + BEGINNING)
            // SAFETY: by the contract, and the range.
            .map(|end| unsafe { relative(end) })
            .filter(|word| word.is_multiple_of(size_of::<usize>()) && words.contains(word))
            // SAFETY: by the contract, and the range.
            .find(|&word| unsafe {
                has_own_function(word) && *(word as *const usize).sub(1) == heap as usize
            })
    }

    /// Whether `site` may be in one of the functions.
    #[inline(always)]
    fn is_near_function(&self, site: usize) -> bool {
        self.functions
            .iter()
            .any(|function| site.wrapping_sub(*function) < LONGEST_FUNCTION)
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

    /// A reference to the word after the context, in the code of `PyMem_Malloc`.
    #[test]
    fn finds_the_table() {
        #[repr(align(16))]
        struct Image([u8; 0xa0]);
        let heap = 0x1230 as *mut c_void;
        let function = DomainFunctions::of(BlockDomain::Memory).malloc as usize;
        let find = |context: usize, function: usize, at: usize| {
            let mut image = Image([0x90; 0xa0]);
            let base = image.0.as_ptr() as usize;
            image.0[at - 4..at].copy_from_slice(&(0x88 - at as i32).to_le_bytes());
            image.0[0x80..0x88].copy_from_slice(&context.to_le_bytes());
            image.0[0x88..0x90].copy_from_slice(&function.to_le_bytes());
            let interpreter = Interpreter {
                code: base..base + 0x80,
                data: base + 0x80..base + 0xa0,
                functions: [0x10, 0x70, 0x78].map(|function| base + function),
            };
            assert!(!interpreter.is_near_function(base + 0xf));
            assert!(interpreter.is_near_function(base + 0x10));
            assert!(interpreter.is_near_function(base + 0x78 + 1023));
            // SAFETY: the image is readable.
            let found = unsafe { interpreter.find_table(heap) };
            found.map(|word| word - base)
        };
        for at in [0x14, 0x20, 0x50] {
            assert_eq!(find(0x1230, function, at), Some(0x88));
            assert_eq!(find(0x1231, function, at), None);
            assert_eq!(find(0x1230, function + 1, at), None);
        }
        assert_eq!(find(0x1230, function, 0x51), None, "too far");
    }

    /// Functions that do not jump to the heap's: requests from here would get the heap's blocks.
    #[test]
    fn a_function_that_calls_is_noticed() {
        static HEAP: AtomicUsize = AtomicUsize::new(0);
        const OWN: DomainFunctions = DomainFunctions::of(BlockDomain::Object);
        unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
            // SAFETY: the heap is this test's.
            unsafe { (OWN.malloc)(HEAP.load(Relaxed) as *mut c_void, size) }
        }
        /// As if the code for elements of 48 bytes were another.
        unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
            // SAFETY: as above.
            unsafe {
                match size {
                    48 => malloc(count * size),
                    _ => libc::calloc(count, size),
                }
            }
        }
        unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
            // SAFETY: as above.
            unsafe { (OWN.realloc)(HEAP.load(Relaxed) as *mut c_void, block, size) }
        }
        let heap = Heap::create(
            nthbyte_heap::HeapConfig::default(),
            [nthbyte_heap::Fallback::LIBC; 2],
        )
        .expect("address space");
        let heap: *mut c_void = heap.as_ptr().cast();
        HEAP.store(heap as usize, Relaxed);
        let [own_malloc, own_calloc, own_realloc] = [
            malloc as *const () as usize,
            calloc as *const () as usize,
            realloc as *const () as usize,
        ];
        let [malloc, calloc, realloc] = [
            libc::malloc as *const () as usize,
            libc::calloc as *const () as usize,
            libc::realloc as *const () as usize,
        ];
        for (functions, expected) in [
            ([malloc, calloc, realloc], true),
            ([own_malloc, calloc, realloc], false),
            ([malloc, own_calloc, realloc], false),
            ([malloc, calloc, own_realloc], false),
        ] {
            let interpreter = Interpreter {
                code: 0..0,
                data: 0..0,
                functions,
            };
            // SAFETY: the heap is this test's.
            let are_told_apart = unsafe { are_told_apart(&interpreter, heap) };
            assert_eq!(are_told_apart, expected, "{functions:?}");
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
