//! The allocator inside of Apache Arrow's library: mimalloc, under names of its own.
//!
//! Since version 25, `libarrow` calls its mimalloc through import slots, by three functions that it defines and exports so that
//! tools can stand before them ([Arrow's issue 50083](https://github.com/apache/arrow/issues/50083)). The slots of that library
//! lead here ([`slots`](crate::slots)). A process with two such libraries has two allocators, and a block must go back to the one
//! that gave it: only the slots of the first library are changed.
//!
//! What mimalloc maps in such a call is not the program's: its blocks are sampled.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use nthbyte_requests::blocks::{BLOCKS, Blocks};
use nthbyte_requests::pages::PAGE_SHIFT;
use nthbyte_session::native::Kind;

use crate::calls::{self, count_of_page, record_block};
use crate::objects::{Object, gnu_hash};
use crate::thread::{self, Busy, Thread};
use crate::{mappings, sampler};

/// The names of the functions, in the order of [`FOUND`].
const NAMES: [&CStr; 3] = [
    c"arrow_mi_malloc_aligned",
    c"arrow_mi_realloc_aligned",
    c"arrow_mi_free",
];
const MALLOC: usize = 0;
const REALLOC: usize = 1;
const FREE: usize = 2;

/// The library's functions. They are known before the first slot leads here.
static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
/// The library's [`Object::dynamic`]; 0 before there is one.
static LIBRARY: AtomicUsize = AtomicUsize::new(0);

/// The functions of the library, by number.
pub struct Bundled([usize; NAMES.len()]);

impl Bundled {
    /// `None` if the object does not define all of them, or is not the first one that does.
    ///
    /// # Safety
    /// The object is loaded, and this thread has the turn to change slots.
    pub unsafe fn of(object: &Object) -> Option<Self> {
        let mut functions = [0; NAMES.len()];
        for (place, name) in functions.iter_mut().zip(NAMES) {
            // SAFETY: by the contract.
            let function = unsafe { object.definition(name, gnu_hash(name)) }?;
            *place = Some(function as usize).filter(|&address| address != 0)?;
        }
        if LIBRARY.load(Relaxed) == 0 {
            for (place, function) in FOUND.iter().zip(functions) {
                place.store(function as *mut c_void, Release);
            }
            LIBRARY.store(object.dynamic.start, Relaxed);
        }
        // Another library may lie where the first one was.
        let known = FOUND.each_ref().map(|place| place.load(Relaxed) as usize);
        (LIBRARY.load(Relaxed) == object.dynamic.start && known == functions)
            .then_some(Self(functions))
    }

    /// This library's function for a slot that holds `value`; `None` if the slot stays as it is.
    pub fn own(&self, value: usize) -> Option<usize> {
        let own = [
            malloc_aligned as *const (),
            realloc_aligned as *const (),
            free as *const (),
        ];
        let at = self.0.iter().position(|&function| function == value)?;
        Some(own[at] as usize)
    }
}

/// `arrow_mi_malloc_aligned`.
#[unsafe(naked)]
unsafe extern "C" fn malloc_aligned(size: usize, alignment: usize) -> *mut c_void {
    naked_asm!(
        "mov rdx, qword ptr [rsp]",
        "jmp {slow}",
        slow = sym malloc_from,
    )
}

/// `arrow_mi_realloc_aligned`.
#[unsafe(naked)]
unsafe extern "C" fn realloc_aligned(
    block: *mut c_void,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    naked_asm!(
        "mov rcx, qword ptr [rsp]",
        "jmp {slow}",
        slow = sym realloc_from,
    )
}

/// `arrow_mi_free`.
#[unsafe(naked)]
unsafe extern "C" fn free(block: *mut c_void) {
    naked_asm!(
        count_of_page!(),
        "jne 2f",
        "jmp qword ptr [rip + {found} + {offset}]",
        "2:",
        "jmp {in_page}",
        shift = const PAGE_SHIFT,
        blocks = sym BLOCKS,
        pages = const offset_of!(Blocks, pages),
        found = sym FOUND,
        offset = const FREE * size_of::<usize>(),
        in_page = sym free_in_page,
    )
}

unsafe extern "C" fn malloc_from(size: usize, alignment: usize, caller: usize) -> *mut c_void {
    type Original = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    let original = FOUND[MALLOC].load(Acquire);
    // SAFETY: the library's call of its function, which has this type; the caller's own state.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, Original>(original);
        take(Kind::Malloc, size, caller, || original(size, alignment))
    }
}

unsafe extern "C" fn realloc_from(
    block: *mut c_void,
    size: usize,
    alignment: usize,
    caller: usize,
) -> *mut c_void {
    type Original = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
    let original = FOUND[REALLOC].load(Acquire);
    // SAFETY: as in `malloc_from`.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, Original>(original);
        take(Kind::Realloc, size, caller, || {
            calls::resize_with(block, size, || original(block, size, alignment))
        })
    }
}

unsafe extern "C" fn free_in_page(block: *mut c_void) {
    type Original = unsafe extern "C" fn(*mut c_void);
    calls::forget(block);
    let original = FOUND[FREE].load(Acquire);
    // SAFETY: as in `malloc_from`.
    unsafe { std::mem::transmute::<*mut c_void, Original>(original)(block) };
}

/// Makes a request, and records it if it is sampled.
///
/// # Safety
/// `request` gives a block of `size` bytes, or null.
unsafe fn take(
    kind: Kind,
    size: usize,
    caller: usize,
    request: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let thread: *mut Thread = thread::current();
    // SAFETY: the caller's own state.
    unsafe {
        let points = sampler::points_of(thread, size, caller);
        let block = {
            let _busy = Busy::begin(thread);
            request()
        };
        if points > 0 && !block.is_null() {
            record_block(thread, block, size, points, kind, mappings::is_large(size));
        }
        block
    }
}
