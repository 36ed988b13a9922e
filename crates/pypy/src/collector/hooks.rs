//! The functions that replace functions of the collector.

use std::ffi::c_void;

use nthbyte_host::AtomicFn;
use nthbyte_rpython::{HookedFunction, MajorStep, Majors, Minor, Reserve, SlowPathOutcome};

use super::engine::Engine;
use crate::stacks::Work;

static RESERVE: AtomicFn<Reserve> = AtomicFn::none();
static MINOR: AtomicFn<Minor> = AtomicFn::none();
static MAJOR_STEP: AtomicFn<MajorStep> = AtomicFn::none();

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

/// Replaces `collect_and_reserve(gc, size)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
unsafe extern "C" fn reserve_hook(gc: *mut c_void, size: usize) -> usize {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { RESERVE.get_original()(gc, size) };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    match engine.sampling.nursery.slow_path(size) {
        SlowPathOutcome::Fits(object, points) => {
            if points > 0 {
                engine.sample(object, size, points, false);
            }
            object
        }
        SlowPathOutcome::Full => {
            engine.sampling.in_reserve = true;
            let object = original();
            // SAFETY: the lock is held. The engine is read again, because the collection may have
            // ended the session.
            let Some(engine) = (unsafe { Engine::current() }) else {
                return object;
            };
            engine.sampling.in_reserve = false;
            let points = engine
                .sampling
                .nursery
                .reserved(if object == 0 { 0 } else { size });
            if points > 0 {
                engine.sample(object, size, points, false);
            }
            object
        }
    }
}

/// Replaces `_minor_collection(gc)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
unsafe extern "C" fn minor_hook(gc: *mut c_void) {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { MINOR.get_original()(gc) };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    if !engine.sampling.in_reserve {
        engine.sampling.nursery.before_collection();
    }
    for large in engine
        .sampling
        .pending
        .iter_mut()
        .filter(|pending| pending.is_large())
    {
        // SAFETY: no collection has begun yet.
        unsafe { large.read_type() };
    }
    engine.sampling.statistics.before_minor();
    let started = engine.session.now();
    engine.sampling.in_minor = true;
    Work::Minor.run(original);
    // SAFETY: the lock is held. The engine is read again, because the collection may have ended the
    // session.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return;
    };
    engine.sampling.in_minor = false;
    engine.settle(started);
    if !engine.sampling.in_reserve {
        engine.sampling.nursery.resume();
    }
}

/// Replaces `major_collection_step(gc, reserving_size)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
unsafe extern "C" fn major_step_hook(gc: *mut c_void, reserving: usize) {
    // SAFETY: the arguments are passed on.
    let original = || unsafe { MAJOR_STEP.get_original()(gc, reserving) };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    let before = engine.sampling.majors.as_ref().map(Majors::state);
    let started = engine.session.now();
    Work::Major.run(original);
    // SAFETY: the lock is held.
    if let (Some(engine), Some(before)) = (unsafe { Engine::current() }, before) {
        engine.step(before, started);
    }
}
