//! The functions that replace functions of the collector. The collector's thread calls them, one at a time.

use std::ffi::c_void;

use nthbyte_host::AtomicFn;
use nthbyte_host::clock::monotonic_nanos;
use nthbyte_rpython::{HookedFunction, MajorStep, Minor, Reserve, SlowPathOutcome};

use super::collecting::collecting;
use super::engine::Engine;

/// A compiler may have put `allocate_nursery` into a function with other arguments, which are passed on.
type Setter = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// At most this many functions that set the nursery are hooked.
pub const MOST_SETTERS: usize = 2;

static RESERVE: AtomicFn<Reserve> = AtomicFn::none();
static MINOR: AtomicFn<Minor> = AtomicFn::none();
static MAJOR_STEP: AtomicFn<MajorStep> = AtomicFn::none();
static SETTERS: [AtomicFn<Setter>; MOST_SETTERS] = [const { AtomicFn::none() }; MOST_SETTERS];

/// `collect_and_reserve`.
pub fn reserve() -> HookedFunction {
    HookedFunction::reserve(reserve_hook, &RESERVE)
}

/// `_minor_collection`.
pub fn minor() -> HookedFunction {
    HookedFunction::minor(minor_hook, &MINOR)
}

/// `major_collection_step`.
pub fn major_step() -> HookedFunction {
    HookedFunction::major_step(major_step_hook, &MAJOR_STEP)
}

/// A function that sets the nursery, below [`MOST_SETTERS`].
pub fn setter(number: usize) -> HookedFunction {
    let hook: Setter = match number {
        0 => setter_hook::<0>,
        _ => setter_hook::<1>,
    };
    HookedFunction::new("allocate_nursery", hook, &SETTERS[number])
}

/// Replaces `collect_and_reserve(gc, size)`.
///
/// # Safety
/// Called by the collector.
unsafe extern "C" fn reserve_hook(gc: *mut c_void, size: usize) -> usize {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { RESERVE.get_original()(gc, size) };
    // SAFETY: this is the collector's thread.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    match engine.slow_path(size) {
        SlowPathOutcome::Fits(object, points) => {
            engine.sample(object, size, points);
            object
        }
        SlowPathOutcome::Full => {
            engine.in_reserve = true;
            let object = original();
            // SAFETY: as above. The hooks of the functions that the original calls have used the engine meanwhile.
            if let Some(engine) = unsafe { Engine::current() } {
                engine.in_reserve = false;
                let points = engine.reserved(if object == 0 { 0 } else { size });
                engine.sample(object, size, points);
            }
            object
        }
    }
}

/// Replaces `_minor_collection(gc)`.
///
/// # Safety
/// Called by the collector.
unsafe extern "C" fn minor_hook(gc: *mut c_void) {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { MINOR.get_original()(gc) };
    // SAFETY: this is the collector's thread.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    if !engine.in_reserve {
        engine.before_collection();
    }
    let started = monotonic_nanos();
    collecting(original);
    // SAFETY: as above.
    if let Some(engine) = unsafe { Engine::current() } {
        engine.settle(started);
        if !engine.in_reserve {
            engine.resume();
        }
    }
}

/// Replaces `major_collection_step(gc, reserving_size)`.
///
/// # Safety
/// Called by the collector.
unsafe extern "C" fn major_step_hook(gc: *mut c_void, reserving: usize) {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { MAJOR_STEP.get_original()(gc, reserving) };
    // SAFETY: this is the collector's thread.
    let before = unsafe { Engine::current() }.and_then(|engine| engine.major_state());
    let started = monotonic_nanos();
    collecting(original);
    // SAFETY: as above.
    if let (Some(engine), Some(before)) = (unsafe { Engine::current() }, before) {
        engine.step(before, started);
    }
}

/// Replaces `allocate_nursery(gc)`, or the function that has it in itself.
///
/// # Safety
/// Called by the collector.
unsafe extern "C" fn setter_hook<const NUMBER: usize>(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { SETTERS[NUMBER].get_original()(a, b, c, d, e, f) };
    // SAFETY: this is the collector's thread.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    engine.before_collection();
    let result = collecting(original);
    // SAFETY: as above.
    if let Some(engine) = unsafe { Engine::current() } {
        engine.resume();
    }
    result
}
