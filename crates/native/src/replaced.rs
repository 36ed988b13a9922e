//! The functions that this library replaces: the next of their names in the order of the dynamic linker.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::{calls, definitions, thread};

/// Addresses of functions. Each type below has the arguments of its function.
#[repr(C)]
pub struct Replaced {
    /// Where `malloc` jumps to. Not used before the first sample point of a thread, so not before [`functions`].
    pub malloc: AtomicPtr<c_void>,
    /// Where `calloc` jumps to.
    pub calloc: AtomicPtr<c_void>,
    /// Where `free` jumps to if the block does not begin at the start of an OS page: to the replaced function, or to
    /// [`calls::free`] if any block may be a sampled one.
    pub free_unaligned: AtomicPtr<c_void>,
    /// The same for `realloc`, and [`calls::realloc_of_page`].
    pub realloc_unaligned: AtomicPtr<c_void>,
    realloc: AtomicPtr<c_void>,
    free: AtomicPtr<c_void>,
    memalign: AtomicPtr<c_void>,
    /// Whether the functions below are known.
    state: AtomicUsize,
}

/// The replaced functions.
#[derive(Clone, Copy)]
pub struct Functions {
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    /// `None` if the allocator that has `malloc` does not have it.
    pub memalign: Option<unsafe extern "C" fn(usize, usize) -> *mut c_void>,
}

pub static REPLACED: Replaced = Replaced {
    malloc: AtomicPtr::new(null_mut()),
    calloc: AtomicPtr::new(null_mut()),
    free_unaligned: AtomicPtr::new(calls::free as *mut c_void),
    realloc_unaligned: AtomicPtr::new(calls::realloc_of_page as *mut c_void),
    realloc: AtomicPtr::new(null_mut()),
    free: AtomicPtr::new(null_mut()),
    memalign: AtomicPtr::new(null_mut()),
    state: AtomicUsize::new(UNKNOWN),
};

const UNKNOWN: usize = 0;
const KNOWN: usize = 1;
// Any other state: the thread pointer of the thread that looks the functions up.

/// The replaced functions. `None` inside of the look-up: the dynamic linker itself may allocate. The first call looks
/// them up.
#[inline]
pub fn functions() -> Option<Functions> {
    if REPLACED.state.load(Acquire) != KNOWN && !look_up() {
        return None;
    }
    let memalign = REPLACED.memalign.load(Relaxed);
    // SAFETY: the addresses are those of functions of these types; they were stored before the state.
    unsafe {
        Some(Functions {
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
    let malloc = next(c"malloc");
    let free = next(c"free");
    let memalign = next(c"memalign");
    REPLACED.malloc.store(malloc, Relaxed);
    REPLACED.calloc.store(next(c"calloc"), Relaxed);
    REPLACED.realloc.store(next(c"realloc"), Relaxed);
    REPLACED.free.store(free, Relaxed);
    // A small allocator may lack `memalign`. The C library's blocks cannot be freed by it.
    if image(memalign) == image(malloc) {
        REPLACED.memalign.store(memalign, Relaxed);
    }
    REPLACED.state.store(KNOWN, Release);
    follow_marks();
    true
}

/// Makes `free` and `realloc` search for blocks at the start of an OS page only.
pub fn follow_marks() {
    let free = REPLACED.free.load(Relaxed);
    let realloc = REPLACED.realloc.load(Relaxed);
    REPLACED.free_unaligned.store(free, Release);
    REPLACED.realloc_unaligned.store(realloc, Release);
}

/// Makes `free` and `realloc` search for every block.
pub fn search_always() {
    let (free, realloc) = (
        calls::free as *mut c_void,
        calls::realloc_of_page as *mut c_void,
    );
    REPLACED.free_unaligned.store(free, Release);
    REPLACED.realloc_unaligned.store(realloc, Release);
}

/// Functions that [`next`] has found; null in an unused place.
static FOUND: [(AtomicPtr<c_char>, AtomicPtr<c_void>); 32] =
    [const { (AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())) }; 32];

/// The function of this name that the program calls without this library; null if there is none. Only the first call for
/// each name takes the dynamic linker's lock.
pub fn next(name: &'static CStr) -> *mut c_void {
    let key = name.as_ptr().cast_mut();
    for (there, function) in &FOUND {
        let there = there.load(Acquire);
        if there == key {
            let function = function.load(Acquire);
            if !function.is_null() {
                return function;
            }
        }
        if there.is_null() {
            break;
        }
    }
    let function = if is_preloaded() {
        // SAFETY: the name is a C string.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    } else {
        definitions::definition(name)
    };
    for (there, place) in &FOUND {
        if !function.is_null()
            && there
                .compare_exchange(null_mut(), key, Acquire, Relaxed)
                .is_ok()
        {
            place.store(function, Release);
            break;
        }
    }
    function
}

/// Whether this library was preloaded, so that the dynamic linker finds its functions first. If not, the agent has
/// loaded it.
pub fn is_preloaded() -> bool {
    static ANSWER: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const NO: usize = 2;
    if ANSWER.load(Relaxed) == UNKNOWN {
        let answer = if definitions::is_preloaded() {
            KNOWN
        } else {
            NO
        };
        ANSWER.store(answer, Relaxed);
    }
    ANSWER.load(Relaxed) == KNOWN
}

/// Where the image begins that has this address; 0 if none has.
pub fn image(address: *const c_void) -> usize {
    // SAFETY: a zeroed `Dl_info` is a valid place for the answer.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 {
            return 0;
        }
        info.dli_fbase as usize
    }
}
