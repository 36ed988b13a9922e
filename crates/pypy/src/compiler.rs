//! What PyPy's JIT compiler does, from the sections of PyPy's log.
//!
//! PyPy calls two functions where a section begins and ends, whether `PYPYLOG` is set or not. Both are hooked: so neither the
//! variable nor its file is touched, and each event has the time of CLOCK_MONOTONIC, as all others do, and not the
//! processor's counter's.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

use nthbyte_host::clock::monotonic_nanos;
use nthbyte_host::{AtomicFn, keep_errno};
use nthbyte_profile::Compilation;
use nthbyte_profile::event::{LostKind, Nanos};
use nthbyte_rpython::HookedFunction;
use nthbyte_rpython::binary::thread_pointer;
use nthbyte_rpython::compiler::{Compiled, Sections};
use nthbyte_session::{Recording, guarded};

use crate::collector::Engine;
use crate::stacks::Stacks;

type Section = unsafe extern "C" fn(*const c_char, usize) -> usize;

static START: AtomicFn<Section> = AtomicFn::none();
static STOP: AtomicFn<Section> = AtomicFn::none();

struct Open(UnsafeCell<Sections>);
// SAFETY: only the holder of the interpreter's lock uses it: the compiler's sections begin and end with the lock held.
unsafe impl Sync for Open {}
static OPEN: Open = Open(UnsafeCell::new(Sections::new()));

/// `pypy_debug_start`.
pub fn start_function() -> HookedFunction {
    HookedFunction::new("pypy_debug_start", start_hook as Section, &START)
}

/// `pypy_debug_stop`.
pub fn stop_function() -> HookedFunction {
    HookedFunction::new("pypy_debug_stop", stop_hook as Section, &STOP)
}

/// Forgets sections whose end the last session did not see. The interpreter's lock must be held.
pub fn forget() {
    // SAFETY: the lock is held.
    unsafe { *OPEN.0.get() = Sections::new() };
}

/// The name of a section of the compiler. All others are passed on at once.
///
/// # Safety
/// The name of a section.
unsafe fn of_compiler<'a>(category: *const c_char) -> Option<&'a CStr> {
    // SAFETY: names are constants of the library. All are longer than this.
    unsafe {
        let is_jit = category.cast::<[u8; 4]>().read_unaligned() == *b"jit-";
        is_jit.then(|| CStr::from_ptr(category))
    }
}

/// Replaces `pypy_debug_start(category, timestamp)`.
///
/// # Safety
/// Called by the interpreter.
unsafe extern "C" fn start_hook(category: *const c_char, timestamp: usize) -> usize {
    // SAFETY: the arguments are passed on.
    let result = unsafe { START.get_original()(category, timestamp) };
    // SAFETY: by the contract, and the compiler holds the lock.
    unsafe {
        if let Some(category) = of_compiler(category)
            && Engine::current().is_some()
        {
            (*OPEN.0.get()).begin(category, thread_pointer(), monotonic_nanos());
        }
    }
    result
}

/// Replaces `pypy_debug_stop(category, timestamp)`.
///
/// # Safety
/// Called by the interpreter.
unsafe extern "C" fn stop_hook(category: *const c_char, timestamp: usize) -> usize {
    // SAFETY: by the contract, and the compiler holds the lock.
    let done = unsafe {
        of_compiler(category)
            .and_then(|category| (*OPEN.0.get()).end(category, thread_pointer(), monotonic_nanos()))
    };
    // SAFETY: the arguments are passed on.
    let result = unsafe { STOP.get_original()(category, timestamp) };
    if let Some(done) = done {
        keep_errno(|| record(&done));
    }
    result
}

fn record(done: &Compiled) {
    guarded(|| {
        // SAFETY: the compiler holds the lock.
        let engine = unsafe { Engine::current() }?;
        let mut recording = engine.session().record(LostKind::Other)?;
        write(&mut recording, done)
    });
}

fn write(recording: &mut Recording<'_>, done: &Compiled) -> Option<()> {
    let thread = Stacks::thread(recording)?;
    // In the child of a fork, the profile's clock begins later.
    let end = recording.at(done.end);
    let start = recording.at(done.start).min(end);
    recording.compilation(Compilation {
        start,
        duration: Nanos(end.0 - start.0),
        optimizing: Nanos(done.optimizing),
        assembling: Nanos(done.assembling),
        thread,
        outcome: done.outcome,
    });
    Some(())
}
