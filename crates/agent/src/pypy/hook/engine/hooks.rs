//! The functions that take the place of the collector's.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::handler::{COLLECTING, thread_pointer};
use super::super::majors::Majors;
use super::super::nursery::Verdict;
use super::{Engine, guarded};

type Reserve = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type Minor = unsafe extern "C" fn(*mut c_void);
type MajorStep = unsafe extern "C" fn(*mut c_void, usize) -> usize;

static RESERVE: AtomicUsize = AtomicUsize::new(0);
static MINOR: AtomicUsize = AtomicUsize::new(0);
static MAJOR_STEP: AtomicUsize = AtomicUsize::new(0);

/// Where the hooked functions have been moved to: `collect_and_reserve`, `_minor_collection`, and if it is hooked,
/// `major_collection_step`. To be told before they are hooked.
pub fn set_originals(moved_to: &[usize]) {
    for (original, &address) in [&RESERVE, &MINOR, &MAJOR_STEP].iter().zip(moved_to) {
        original.store(address, Ordering::Relaxed);
    }
}

/// Takes the place of `collect_and_reserve(gc, size)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
pub unsafe extern "C" fn reserve_hook(gc: *mut c_void, size: usize) -> usize {
    // SAFETY: `set_originals` stored the address of the moved function, which has this type.
    let original = || unsafe {
        std::mem::transmute::<usize, Reserve>(RESERVE.load(Ordering::Relaxed))(gc, size)
    };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    match engine.nursery.slow_path(size) {
        Verdict::Fits(object, points) => {
            if points > 0 {
                guarded(|| engine.sample(object, size, points, false));
            }
            object
        }
        Verdict::Full => {
            engine.in_reserve = true;
            let object = original();
            // SAFETY: the lock is held; the collection may have ended the session meanwhile.
            let Some(engine) = (unsafe { Engine::current() }) else {
                return object;
            };
            engine.in_reserve = false;
            let points = engine.nursery.reserved(if object == 0 { 0 } else { size });
            if points > 0 {
                guarded(|| engine.sample(object, size, points, false));
            }
            object
        }
    }
}

/// Takes the place of `_minor_collection(gc)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
pub unsafe extern "C" fn minor_hook(gc: *mut c_void) {
    // SAFETY: `set_originals` stored the address of the moved function, which has this type.
    let original =
        || unsafe { std::mem::transmute::<usize, Minor>(MINOR.load(Ordering::Relaxed))(gc) };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    if !engine.in_reserve {
        engine.nursery.before_collection();
    }
    for large in engine.young.iter_mut().filter(|young| young.is_alone()) {
        // SAFETY: no collection has begun yet.
        unsafe { large.look() };
    }
    let started = engine.recorder.now();
    engine.in_minor = true;
    COLLECTING.store(thread_pointer(), Ordering::Relaxed);
    original();
    COLLECTING.store(0, Ordering::Relaxed);
    // SAFETY: the lock is held; the collection may have ended the session meanwhile.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return;
    };
    engine.in_minor = false;
    guarded(|| engine.settle(started));
    if !engine.in_reserve {
        engine.nursery.resume();
    }
}

/// Takes the place of `major_collection_step(gc, reserving_size)`.
///
/// # Safety
/// Called by the interpreter, with its lock held.
pub unsafe extern "C" fn major_step_hook(gc: *mut c_void, reserving: usize) -> usize {
    // SAFETY: `set_originals` stored the address of the moved function, which has this type.
    let original = || unsafe {
        let address = MAJOR_STEP.load(Ordering::Relaxed);
        std::mem::transmute::<usize, MajorStep>(address)(gc, reserving)
    };
    // SAFETY: the lock is held.
    let Some(engine) = (unsafe { Engine::current() }) else {
        return original();
    };
    let before = engine.majors.as_ref().map(Majors::state);
    let started = engine.recorder.now();
    let nothing = original();
    // SAFETY: the lock is held.
    if let (Some(engine), Some(before)) = (unsafe { Engine::current() }, before) {
        guarded(|| engine.step(before, started));
    }
    nothing
}
