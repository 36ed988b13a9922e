//! Interpreters with a GIL of their own (CPython 3.12 and later).
//!
//! The heap has one lock, the main interpreter's GIL. When an interpreter with another GIL is about
//! to come into being, functions are installed that ask, at every call, under which GIL they run:
//! the heap serves the main one, and the allocator that was there before serves the others, which
//! are not sampled. A block of the heap that another interpreter frees is put aside for the heap.
//!
//! The moment is known because an interpreter's state (`PyInterpreterState`, 190 KiB and more) is
//! allocated with `PyMem_RawCalloc`: that function, which programs call rarely, is wrapped.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use nthbyte_heap::{Domain, Fallback, Functions, Heap};

use crate::api::{AllocatorDomain, AllocatorEx, Api};
use crate::layout::Layout;
use crate::memory::field;

/// What the guarding functions need; they may run under any GIL, so it never changes.
struct Guard {
    thread_state: unsafe extern "C" fn() -> *mut c_void,
    main: usize,
    main_gil: usize,
    thread_interpreter: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    gil_offset: usize,
    interpreter_size: usize,
    raw_calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    heap: usize,
    fallbacks: [Fallback; 2],
    install: fn(&[Functions; 2]),
}

// SAFETY: the pointers in the fallbacks are contexts of allocators that may be called from any thread
// that has a GIL.
unsafe impl Send for Guard {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Guard {}

static GUARD: OnceLock<Guard> = OnceLock::new();
static GUARDING: AtomicBool = AtomicBool::new(false);

/// Starts to watch for new interpreters; guards at once if there are others already. For CPython 3.12
/// and later.
///
/// `install` puts functions in the place of the heap's.
///
/// # Safety
/// The GIL of the main interpreter is held. The heap is installed.
pub unsafe fn watch(
    api: &Api,
    layout: &Layout,
    heap: *mut c_void,
    fallbacks: [Fallback; 2],
    install: fn(&[Functions; 2]),
) {
    // SAFETY: by the contract.
    unsafe {
        let main = (api.PyInterpreterState_Main)() as usize;
        let mut raw = AllocatorEx::NONE;
        (api.PyMem_GetAllocator)(AllocatorDomain::Raw, &raw mut raw);
        let Some(raw_calloc) = raw.calloc else { return };
        let guard = Guard {
            thread_state: api.PyThreadState_GetUnchecked,
            main,
            main_gil: field(main, layout.interpreter_gil),
            thread_interpreter: api.PyThreadState_GetInterpreter,
            gil_offset: layout.interpreter_gil,
            interpreter_size: layout.interpreter_size,
            raw_calloc,
            heap: heap as usize,
            fallbacks,
            install,
        };
        if GUARD.set(guard).is_err() {
            return;
        }
        // Only `calloc` changes, and the context stays: other threads may be reading the four functions
        // at this moment, and any mixture of old and new is right.
        raw.calloc = Some(calloc_raw);
        (api.PyMem_SetAllocator)(AllocatorDomain::Raw, &raw mut raw);
        let first = (api.PyInterpreterState_Head)();
        if first as usize != main || !(api.PyInterpreterState_Next)(first).is_null() {
            guard_now();
        }
    }
}

/// Whether the caller runs under the main interpreter's GIL.
#[must_use]
pub fn under_main_gil() -> bool {
    !GUARDING.load(Acquire) || GUARD.get().is_none_or(|guard| guard.is_main())
}

impl Guard {
    fn is_main(&self) -> bool {
        // SAFETY: callable at any time; a thread state that it returns is live, and so is its interpreter.
        unsafe {
            let state = (self.thread_state)();
            if state.is_null() {
                return false;
            }
            let interpreter = (self.thread_interpreter)(state) as usize;
            interpreter == self.main
                || field::<usize>(interpreter, self.gil_offset) == self.main_gil
        }
    }
}

fn guard_now() {
    if let Some(guard) = GUARD.get()
        && !GUARDING.swap(true, AcqRel)
    {
        (guard.install)(&[guarded::<0>(), guarded::<1>()]);
    }
}

unsafe extern "C" fn calloc_raw(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(guard) = GUARD.get() else {
        return std::ptr::null_mut();
    };
    // Up to an alignment more is asked for.
    let asked = count.saturating_mul(size);
    if (guard.interpreter_size..guard.interpreter_size + 256).contains(&asked) {
        guard_now();
    }
    // SAFETY: the wrapped function, with the arguments of its caller.
    unsafe { (guard.raw_calloc)(context, count, size) }
}

const fn domain<const DOMAIN: u8>() -> Domain {
    if DOMAIN == Domain::Object as u8 {
        Domain::Object
    } else {
        Domain::Memory
    }
}

fn guarded<const DOMAIN: u8>() -> Functions {
    Functions {
        malloc: malloc::<DOMAIN>,
        calloc: calloc::<DOMAIN>,
        realloc: realloc::<DOMAIN>,
        free: free::<DOMAIN>,
    }
}

/// The heap's functions and context for the main GIL, the fallback's for another.
fn route<const DOMAIN: u8>() -> (Functions, *mut c_void, bool) {
    let domain = domain::<DOMAIN>();
    match GUARD.get() {
        Some(guard) if !guard.is_main() => {
            let Fallback {
                context,
                malloc,
                calloc,
                realloc,
                free,
            } = guard.fallbacks[domain as usize];
            (
                Functions {
                    malloc,
                    calloc,
                    realloc,
                    free,
                },
                context,
                false,
            )
        }
        guard => (
            Functions::of(domain),
            guard.map_or(0, |guard| guard.heap) as *mut c_void,
            true,
        ),
    }
}

unsafe extern "C" fn malloc<const DOMAIN: u8>(_: *mut c_void, size: usize) -> *mut c_void {
    let (functions, context, _) = route::<DOMAIN>();
    // SAFETY: the caller holds the GIL under which these functions may be called.
    unsafe { (functions.malloc)(context, size) }
}

unsafe extern "C" fn calloc<const DOMAIN: u8>(
    _: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let (functions, context, _) = route::<DOMAIN>();
    // SAFETY: as above.
    unsafe { (functions.calloc)(context, count, size) }
}

unsafe extern "C" fn realloc<const DOMAIN: u8>(
    heap: *mut c_void,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    let (functions, context, is_main) = route::<DOMAIN>();
    // SAFETY: as above. A block of the heap is in use, so its size can be read from any thread.
    unsafe {
        if is_main || block.is_null() || !Heap::owns(heap, block) {
            return (functions.realloc)(context, block, size);
        }
        let moved = (functions.malloc)(context, size);
        if !moved.is_null() {
            std::ptr::copy_nonoverlapping(
                block.cast::<u8>(),
                moved.cast::<u8>(),
                size.min(Heap::usable_size(heap, block)),
            );
            Heap::remote_free(heap, block);
        }
        moved
    }
}

unsafe extern "C" fn free<const DOMAIN: u8>(heap: *mut c_void, block: *mut c_void) {
    let (functions, context, is_main) = route::<DOMAIN>();
    // SAFETY: as above.
    unsafe {
        if is_main || block.is_null() || !Heap::owns(heap, block) {
            (functions.free)(context, block);
        } else {
            Heap::remote_free(heap, block);
        }
    }
}
