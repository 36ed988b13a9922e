//! The functions that replace functions of the collector.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::engine::Engine;
use crate::stacks::Work;
use nthbyte_rpython::Majors;
use nthbyte_rpython::SlowPathOutcome;

type Reserve = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type Minor = unsafe extern "C" fn(*mut c_void);
type MajorStep = unsafe extern "C" fn(*mut c_void, usize);

static RESERVE: AtomicUsize = AtomicUsize::new(0);
static MINOR: AtomicUsize = AtomicUsize::new(0);
static MAJOR_STEP: AtomicUsize = AtomicUsize::new(0);

/// A function of the collector that is hooked.
#[derive(Debug)]
pub struct HookedFunction {
    /// The function's name in PyPy's source.
    pub name: &'static str,
    /// The address of the function that replaces it.
    pub hook: *const (),
    original: &'static AtomicUsize,
}

impl HookedFunction {
    /// A function by its name in PyPy's source, what replaces it, and the place for the address of the original.
    pub const fn new(name: &'static str, hook: *const (), original: &'static AtomicUsize) -> Self {
        Self {
            name,
            hook,
            original,
        }
    }

    /// `collect_and_reserve`.
    pub fn reserve() -> Self {
        Self {
            name: "collect_and_reserve",
            hook: reserve_hook as *const (),
            original: &RESERVE,
        }
    }

    /// `_minor_collection`.
    pub fn minor() -> Self {
        Self {
            name: "_minor_collection",
            hook: minor_hook as *const (),
            original: &MINOR,
        }
    }

    /// `major_collection_step`.
    pub fn major_step() -> Self {
        Self {
            name: "major_collection_step",
            hook: major_step_hook as *const (),
            original: &MAJOR_STEP,
        }
    }

    /// Sets the address of the original function. Call this before the hook is placed.
    pub fn moved_to(&self, address: usize) {
        self.original.store(address, Ordering::Relaxed);
    }
}

/// Replaces `collect_and_reserve(gc, size)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
unsafe extern "C" fn reserve_hook(gc: *mut c_void, size: usize) -> usize {
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original = || unsafe {
        std::mem::transmute::<usize, Reserve>(RESERVE.load(Ordering::Relaxed))(gc, size)
    };
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
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original =
        || unsafe { std::mem::transmute::<usize, Minor>(MINOR.load(Ordering::Relaxed))(gc) };
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
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original = || unsafe {
        let address = MAJOR_STEP.load(Ordering::Relaxed);
        std::mem::transmute::<usize, MajorStep>(address)(gc, reserving)
    };
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
