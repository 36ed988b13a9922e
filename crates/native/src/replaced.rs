//! The functions that this library replaces: the next of their names in the order of the dynamic linker.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use nthbyte_host::process::image;

#[cfg(not(test))]
use crate::functions::own;
use crate::functions::{FUNCTIONS, Function, NAMES, OPERATORS};
use crate::{calls, definitions, sampler, thread};

/// The replaced functions, by number; null for one that the process does not have, or before the look-up.
pub static FOUND: [AtomicPtr<c_void>; FUNCTIONS] =
    [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];

/// Addresses of functions. Each type below has the arguments of its function.
#[repr(C)]
pub struct Replaced {
    /// Where `malloc` jumps to: the replaced function once it is known. A thread's first request asks for [`functions`].
    pub malloc: AtomicPtr<c_void>,
    /// Where `calloc` jumps to.
    pub calloc: AtomicPtr<c_void>,
    /// Where `free` jumps to if the word before the block says that it is small: to the replaced function, or to
    /// [`calls::free_of_any_size`] if any block may be a sampled one.
    pub free_small: AtomicPtr<c_void>,
    /// The same for `realloc`, and [`calls::resize`].
    pub realloc_small: AtomicPtr<c_void>,
    /// Where `reallocarray` jumps to: see [`find_resize`].
    pub resize: AtomicPtr<c_void>,
    /// Where `realloc` jumps to if there is no sampled block in the block's page: the replaced function, once it is known.
    pub realloc: AtomicPtr<c_void>,
    /// The same for `free`.
    pub free: AtomicPtr<c_void>,
    memalign: AtomicPtr<c_void>,
    usable_size: AtomicPtr<c_void>,
    /// Whether the functions below are known.
    state: AtomicUsize,
}

/// The replaced functions.
#[derive(Clone, Copy)]
pub struct ReplacedFunctions {
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    /// `None` if the allocator that has `malloc` does not have it.
    pub memalign: Option<unsafe extern "C" fn(usize, usize) -> *mut c_void>,
}

/// `malloc_usable_size` of the allocator that has `malloc`. Only after [`functions`] has found that.
pub fn usable_size() -> Option<unsafe extern "C" fn(*mut c_void) -> usize> {
    let found = REPLACED.usable_size.load(Relaxed);
    // SAFETY: the address of a function of this type, or null.
    (!found.is_null()).then(|| unsafe { std::mem::transmute(found) })
}

pub static REPLACED: Replaced = Replaced {
    malloc: AtomicPtr::new(calls::malloc_in_look_up as *mut c_void),
    calloc: AtomicPtr::new(calls::calloc_in_look_up as *mut c_void),
    free_small: AtomicPtr::new(calls::free as *mut c_void),
    realloc_small: AtomicPtr::new(calls::resize as *mut c_void),
    #[cfg(not(test))]
    resize: AtomicPtr::new(own::first_resize as *mut c_void),
    #[cfg(test)]
    resize: AtomicPtr::new(null_mut()),
    realloc: AtomicPtr::new(calls::resize as *mut c_void),
    free: AtomicPtr::new(calls::free as *mut c_void),
    memalign: AtomicPtr::new(null_mut()),
    usable_size: AtomicPtr::new(null_mut()),
    state: AtomicUsize::new(UNKNOWN),
};

const UNKNOWN: usize = 0;
const KNOWN: usize = 1;
// Any other state: the thread pointer of the thread that looks the functions up.

/// The replaced functions. `None` inside of the look-up: the dynamic linker itself may allocate. The first call looks
/// them up.
#[inline]
pub fn functions() -> Option<ReplacedFunctions> {
    if REPLACED.state.load(Acquire) != KNOWN && !look_up() {
        return None;
    }
    let memalign = REPLACED.memalign.load(Relaxed);
    // SAFETY: the addresses are of functions of these types; they were stored before the state.
    unsafe {
        Some(ReplacedFunctions {
            malloc: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(
                REPLACED.malloc.load(Relaxed),
            ),
            calloc: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(usize, usize) -> *mut c_void,
            >(REPLACED.calloc.load(Relaxed)),
            realloc: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
            >(REPLACED.realloc.load(Relaxed)),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(
                REPLACED.free.load(Relaxed),
            ),
            memalign:
                (!memalign.is_null()).then(|| {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn(usize, usize) -> *mut c_void,
                    >(memalign)
                }),
        })
    }
}

/// Returns whether the functions are known now.
#[cold]
#[inline(never)]
fn look_up() -> bool {
    let own = thread::current() as usize;
    loop {
        match REPLACED
            .state
            .compare_exchange(UNKNOWN, own, Acquire, Acquire)
        {
            Ok(_) => break,
            Err(KNOWN) => return true,
            Err(other) if other == own => return false,
            // Another thread is looking them up: a few microseconds.
            Err(_) => std::hint::spin_loop(),
        }
    }
    find_all();
    let found = |function: Function| FOUND[function as usize].load(Relaxed);
    let (malloc, memalign) = (found(Function::Malloc), found(Function::Memalign));
    let [start, end] = image::range(malloc as usize);
    let [usable_size] = find(&[c"malloc_usable_size"]);
    // Nothing below allocates: inside of the look-up, all blocks are early ones.
    REPLACED.malloc.store(malloc, Relaxed);
    REPLACED.calloc.store(found(Function::Calloc), Relaxed);
    REPLACED.realloc.store(found(Function::Realloc), Relaxed);
    REPLACED.free.store(found(Function::Free), Relaxed);
    // A small allocator may lack these. The C library's do not know its blocks.
    for (place, function) in [
        (&REPLACED.memalign, memalign),
        (&REPLACED.usable_size, usable_size),
    ] {
        if (start..end).contains(&(function as usize)) {
            place.store(function, Relaxed);
        }
    }
    REPLACED.state.store(KNOWN, Release);
    search_large_only();
    // Requests inside of the look-up have taken it below zero.
    // SAFETY: the calling thread's state.
    unsafe { sampler::join(thread::current()) };
    true
}

/// Makes `free` and `realloc` search for blocks of [`calls::LEAST`] bytes or more only, and for those at the start of an
/// OS page, before which there may be no word.
pub fn search_large_only() {
    let free = REPLACED.free.load(Relaxed);
    let realloc = REPLACED.realloc.load(Relaxed);
    REPLACED.free_small.store(free, Release);
    REPLACED.realloc_small.store(realloc, Release);
}

/// Makes `free` and `realloc` search for every block.
pub fn search_always() {
    let (free, realloc) = (
        calls::free_of_any_size as *mut c_void,
        calls::resize as *mut c_void,
    );
    REPLACED.free_small.store(free, Release);
    REPLACED.realloc_small.store(realloc, Release);
}

/// Finds the `realloc` that knows the blocks of the process's `malloc`, for `reallocarray`. It is this library's own, unless
/// a program has an allocator of its own, which comes before a preloaded library, or a library that was preloaded earlier.
/// Such an allocator may lack `reallocarray`.
#[cfg(not(test))]
pub extern "C" fn find_resize() -> *mut c_void {
    let mut found = null_mut();
    if is_preloaded() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"realloc".as_ptr()) };
    }
    if found.is_null() {
        found = own::realloc as *mut c_void;
    }
    REPLACED.resize.store(found, Relaxed);
    found
}

/// Finds all functions, in the thread that looks them up.
fn find_all() {
    let names = NAMES.first_chunk::<OPERATORS>().expect("there are more");
    for (place, function) in FOUND.iter().zip(find(names)) {
        place.store(function, Relaxed);
    }
}

/// The functions of these names that the program calls without this library; null for one that there is not.
fn find<const COUNT: usize>(names: &[&'static CStr; COUNT]) -> [*mut c_void; COUNT] {
    if is_preloaded() {
        // SAFETY: the names are C strings.
        names.map(|name| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) })
    } else {
        definitions::of(names)
    }
}

/// Whether the word before each block has the block's size: the allocator is glibc's, and one of its blocks says so. Where a
/// tool has taken over `malloc` in its place (valgrind), it does not.
pub fn has_sizes() -> bool {
    let Some(replaced) = functions() else {
        return false;
    };
    let [first, last] = image::range(definitions::c_library());
    let is_c_library = |function: usize| (first..last).contains(&function);
    let Some(usable_size) = usable_size() else {
        return false;
    };
    if !is_c_library(replaced.malloc as usize) || !is_c_library(replaced.free as usize) {
        return false;
    }
    // SAFETY: glibc's functions, called as by a program. Before each of its blocks is a word.
    unsafe {
        let block = (replaced.malloc)(calls::LEAST);
        if block.is_null() {
            return false;
        }
        let word = block.cast::<usize>().sub(1).read();
        let size = usable_size(block) + calls::HEADER;
        (replaced.free)(block);
        word & !calls::FLAGS == size && word >= calls::LEAST_CHUNK
    }
}

/// Whether a block of the C library has a mapping of its own: the word before it says so (`IS_MMAPPED` in glibc's
/// `malloc/malloc.c`). Of other allocators' blocks it is not known.
pub fn has_mapping(block: *mut c_void) -> bool {
    const IS_MAPPED: usize = 2;
    static ANSWER: Answer = Answer::new();
    // SAFETY: the block is in use, so the word before it is the allocator's description of it.
    ANSWER.get(has_sizes) && unsafe { block.cast::<usize>().sub(1).read() } & IS_MAPPED != 0
}

/// Whether functions from [`OPERATORS`] on are replaced.
#[cfg(not(test))]
pub fn has_operators() -> bool {
    FOUND[OPERATORS..]
        .iter()
        .any(|function| !function.load(Relaxed).is_null())
}

/// The function that the program calls without this library; null if there is none, or inside of the look-up.
#[inline]
pub fn next(function: Function) -> *mut c_void {
    functions();
    FOUND[function as usize].load(Relaxed)
}

/// Whether this library was preloaded, so that the dynamic linker finds its functions first. If not, the agent has
/// loaded it.
pub fn is_preloaded() -> bool {
    static ANSWER: Answer = Answer::new();
    ANSWER.get(definitions::is_preloaded)
}

/// The answer to a question, which is asked once. If several threads ask it at once, they find the same.
struct Answer(AtomicUsize);

impl Answer {
    const NO: usize = 2;

    const fn new() -> Self {
        Self(AtomicUsize::new(UNKNOWN))
    }

    fn get(&self, ask: impl FnOnce() -> bool) -> bool {
        if self.0.load(Relaxed) == UNKNOWN {
            self.0.store(if ask() { KNOWN } else { Self::NO }, Relaxed);
        }
        self.0.load(Relaxed) == KNOWN
    }
}
