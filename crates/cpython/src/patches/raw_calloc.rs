//! `calloc` of the domain `RAW`, which detects new interpreters (CPython 3.12 and later).
//!
//! - What: `PyMem_RawCalloc`, which programs call rarely. CPython allocates an interpreter's state
//!   (`PyInterpreterState`, 190 KiB and more) with it.
//! - Installed: with the heap, before the first session. If there are other interpreters already, the heap is shared at
//!   once.
//! - Removed: never. Code that restores the function it found earlier, as `tracemalloc.stop()` does, restores this one.
//!
//! An interpreter may have its own GIL, but the heap has one lock: the main interpreter's GIL. So before the first
//! other interpreter exists, the heap is [shared](Heap::share): it checks the GIL of each caller. The heap serves the
//! main interpreter. The original allocator serves the others, which are not sampled. Sharing does not change the
//! functions in place. So other code may store and restore them at any time: `tracemalloc`, for example, stores the
//! functions when it starts and restores them when it stops.
//!
//! Sharing the heap needs the main GIL. From 3.13 on, CPython creates an interpreter without any GIL, and waiting for
//! it could block until the process ends, because the caller holds a lock of the runtime. Then functions that check for
//! the GIL ([`super::guarded`]) replace the heap's, and the first call under the main GIL shares the heap.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use nthbyte_heap::{Fallback, Heap};

use super::{NO_ADDRESSES, guarded};
use crate::api::{AllocatorDomain, AllocatorEx, Api, Gil};
use crate::layout::Layout;
use nthbyte_host::process::field;

/// The largest excess of a request over `sizeof(PyInterpreterState)`, because of alignment.
pub const LARGEST_ALIGNMENT: usize = 256;

type Calloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;

/// State that is read under any GIL. It never changes.
struct Watch {
    api: &'static Api,
    main: usize,
    main_gil: usize,
    gil_offset: usize,
    interpreter_size: usize,
    raw_calloc: Calloc,
}

static WATCH: OnceLock<Watch> = OnceLock::new();
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(std::ptr::null_mut());
/// Whether other interpreters exist, or will exist in a moment.
static OTHERS: AtomicBool = AtomicBool::new(false);
/// Whether the heap is shared.
static SHARED: AtomicBool = AtomicBool::new(false);
/// Whether the heap is inside a call of its fallback, while it is not shared. Written under the main GIL only.
static IN_FALLBACK: AtomicBool = AtomicBool::new(false);
/// Whether sharing failed because there was no address space.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Starts to watch for new interpreters. Does nothing in versions with a single GIL.
///
/// # Errors
/// One line: other interpreters exist, and there is no memory.
///
/// # Safety
/// The GIL is the main interpreter's, and the layout was verified. The heap is not in use yet, and its fallbacks were
/// [wrapped](watched).
pub unsafe fn install(gil: &Gil, layout: &Layout, heap: *mut Heap) -> Result<(), String> {
    if !layout.features.own_gils {
        return Ok(());
    }
    let api = gil.api();
    // SAFETY: by the contract.
    unsafe {
        let main = (api.PyInterpreterState_Main)() as usize;
        let mut raw = AllocatorEx::NONE;
        (api.PyMem_GetAllocator)(AllocatorDomain::Raw, &raw mut raw);
        let raw_calloc = raw
            .calloc
            .ok_or("cannot profile this interpreter: it has no allocator")?;
        WATCH.get_or_init(|| Watch {
            api,
            main,
            main_gil: field(main, layout.interpreter_gil),
            gil_offset: layout.interpreter_gil,
            interpreter_size: layout.interpreter_size,
            raw_calloc,
        });
        HEAP.store(heap, Release);
        let first = (api.PyInterpreterState_Head)();
        let others = first as usize != main || !(api.PyInterpreterState_Next)(first).is_null();
        OTHERS.store(others, Release);
        if others && !share() {
            return Err(NO_ADDRESSES.to_owned());
        }
        // Only `calloc` changes, and the context stays the same: other threads may be reading the four functions at
        // this moment, and any mixture of old and new is correct.
        raw.calloc = Some(calloc);
        (api.PyMem_SetAllocator)(AllocatorDomain::Raw, &raw mut raw);
    }
    Ok(())
}

/// Whether the caller holds the main interpreter's GIL, or there is no other GIL.
#[must_use]
pub fn under_main_gil() -> bool {
    // SAFETY: callable at any time.
    !OTHERS.load(Acquire) || unsafe { holds_main_gil() }
}

/// Whether the calling thread holds the main interpreter's GIL.
///
/// # Safety
/// None: it may be called at any time.
pub unsafe extern "C" fn holds_main_gil() -> bool {
    let Some(watch) = WATCH.get() else {
        return false;
    };
    // SAFETY: callable at any time; a thread state that it returns is live and attached, and so is its interpreter.
    unsafe {
        let state = (watch.api.PyThreadState_GetUnchecked)();
        if state.is_null() {
            return false;
        }
        let interpreter = (watch.api.PyThreadState_GetInterpreter)(state) as usize;
        let is_main = interpreter == watch.main
            || field::<usize>(interpreter, watch.gil_offset) == watch.main_gil;
        if !is_main {
            nthbyte_session::interpreter_ran();
        }
        is_main
    }
}

/// Shares the heap. Returns whether it succeeded.
///
/// # Safety
/// The main GIL is held, and the heap is not further up the stack.
unsafe fn share() -> bool {
    // SAFETY: by the contract; the fallbacks are CPython's own, which serve each interpreter.
    let shared = unsafe { Heap::share(HEAP.load(Acquire), holds_main_gil) };
    if shared {
        SHARED.store(true, Release);
    } else {
        REFUSED.store(true, Relaxed);
    }
    shared
}

/// Shares the heap if an earlier attempt was not possible and it is possible now.
pub fn share_when_possible() {
    if !SHARED.load(Acquire) && !REFUSED.load(Relaxed) {
        // SAFETY: callable at any time. The guarding functions are not called from within the heap.
        unsafe {
            if holds_main_gil() {
                share();
            }
        }
    }
}

/// Called for a request of the size of an interpreter's state.
#[cold]
fn notice(watch: &Watch) {
    // SAFETY: with the main GIL held, the caller is either CPython creating an interpreter, or the heap's fallback with
    // a request for another purpose.
    unsafe {
        if holds_main_gil() {
            if IN_FALLBACK.load(Relaxed) {
                return;
            }
            OTHERS.store(true, Release);
            if share() {
                return;
            }
        }
        OTHERS.store(true, Release);
        guarded::install(watch.api, HEAP.load(Acquire));
    }
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(watch) = WATCH.get() else {
        return std::ptr::null_mut();
    };
    let asked = count.saturating_mul(size);
    if (watch.interpreter_size..watch.interpreter_size + LARGEST_ALIGNMENT).contains(&asked)
        && !SHARED.load(Acquire)
    {
        notice(watch);
    }
    // SAFETY: the wrapped function, with the arguments of its caller.
    unsafe { (watch.raw_calloc)(context, count, size) }
}

/// The `calloc` functions of the fallbacks. The original allocator may pass a request on to the domain `RAW`, which
/// must not mistake it for an interpreter's state.
static FALLBACKS: OnceLock<[Calloc; 2]> = OnceLock::new();

/// The fallbacks with a wrapped `calloc`, for the heap to call.
#[must_use]
pub fn watched(layout: &Layout, fallbacks: [Fallback; 2]) -> [Fallback; 2] {
    if !layout.features.own_gils {
        return fallbacks;
    }
    FALLBACKS.get_or_init(|| fallbacks.map(|one| one.calloc));
    let [object, memory] = fallbacks;
    [
        Fallback {
            calloc: fallback_calloc::<0>,
            ..object
        },
        Fallback {
            calloc: fallback_calloc::<1>,
            ..memory
        },
    ]
}

unsafe extern "C" fn fallback_calloc<const DOMAIN: usize>(
    context: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(calloc) = FALLBACKS.get().map(|both| both[DOMAIN]) else {
        return std::ptr::null_mut();
    };
    let alone = !SHARED.load(Acquire);
    if alone {
        IN_FALLBACK.store(true, Relaxed);
    }
    // SAFETY: the wrapped function, with the arguments of its caller.
    let block = unsafe { calloc(context, count, size) };
    if alone {
        IN_FALLBACK.store(false, Relaxed);
    }
    block
}
