//! The functions that replace functions of the collector. The collector's thread calls them, one at a time.

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::clock::monotonic_nanos;
use nthbyte_rpython::SlowPathOutcome;

use super::collecting::collecting;
use super::engine::Engine;

type Reserve = unsafe extern "C" fn(*mut c_void, usize) -> usize;
type Minor = unsafe extern "C" fn(*mut c_void);
type MajorStep = unsafe extern "C" fn(*mut c_void, usize);
/// A compiler may have put `allocate_nursery` into a function with other arguments, which are passed on.
type Setter = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// At most this many functions that set the nursery are hooked.
pub const MOST_SETTERS: usize = 2;

static RESERVE: AtomicUsize = AtomicUsize::new(0);
static MINOR: AtomicUsize = AtomicUsize::new(0);
static MAJOR_STEP: AtomicUsize = AtomicUsize::new(0);
static SETTERS: [AtomicUsize; MOST_SETTERS] = [const { AtomicUsize::new(0) }; MOST_SETTERS];

/// A function of the collector that is hooked.
#[derive(Debug)]
pub struct HookedFunction {
    /// The function's name in RPython's source.
    pub name: &'static str,
    /// The address of the function that replaces it.
    pub hook: usize,
    original: &'static AtomicUsize,
}

impl HookedFunction {
    /// `collect_and_reserve`.
    pub fn reserve() -> Self {
        Self {
            name: "collect_and_reserve",
            hook: reserve_hook as *const () as usize,
            original: &RESERVE,
        }
    }

    /// `_minor_collection`.
    pub fn minor() -> Self {
        Self {
            name: "_minor_collection",
            hook: minor_hook as *const () as usize,
            original: &MINOR,
        }
    }

    /// `major_collection_step`.
    pub fn major_step() -> Self {
        Self {
            name: "major_collection_step",
            hook: major_step_hook as *const () as usize,
            original: &MAJOR_STEP,
        }
    }

    /// A function that sets the nursery, below [`MOST_SETTERS`].
    pub fn setter(number: usize) -> Self {
        Self {
            name: "allocate_nursery",
            hook: match number {
                0 => setter_hook::<0> as *const () as usize,
                _ => setter_hook::<1> as *const () as usize,
            },
            original: &SETTERS[number],
        }
    }

    /// Sets the address of the original function. Call this before the hook is placed.
    pub fn moved_to(&self, address: usize) {
        self.original.store(address, Relaxed);
    }
}

/// Replaces `collect_and_reserve(gc, size)`.
///
/// # Safety
/// Called by the collector.
unsafe extern "C" fn reserve_hook(gc: *mut c_void, size: usize) -> usize {
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original =
        || unsafe { std::mem::transmute::<usize, Reserve>(RESERVE.load(Relaxed))(gc, size) };
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
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original = || unsafe { std::mem::transmute::<usize, Minor>(MINOR.load(Relaxed))(gc) };
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
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, which has this type.
    let original = || unsafe {
        std::mem::transmute::<usize, MajorStep>(MAJOR_STEP.load(Relaxed))(gc, reserving)
    };
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
    let address = SETTERS[NUMBER].load(Relaxed);
    // SAFETY: `HookedFunction::moved_to` stored the address of the moved function, whose arguments are passed on.
    let original = || unsafe { std::mem::transmute::<usize, Setter>(address)(a, b, c, d, e, f) };
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
