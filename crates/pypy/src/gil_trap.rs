//! The GIL trap: how C code that Python calls gets the interpreter's lock.
//!
//! Python calls C functions without the lock, on PyPy even those of `ctypes.PyDLL`. But PyPy holds it whenever it
//! allocates an object. So the agent has Python allocate one large object of a certain size, and does its work inside
//! of the `malloc` that PyPy calls for it.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::binary::{LARGE_OBJECT, thread_pointer};

/// The thread (its thread pointer) that has set a trap; 0 if there is none.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The trap, which only that thread reads.
static TRAP: AtomicPtr<GilTrap> = AtomicPtr::new(std::ptr::null_mut());

/// What is done when the calling thread allocates a large object of the size that it was asked for.
pub struct GilTrap {
    /// What to do then. `None`: note the calls of `malloc`.
    action: Option<Box<dyn FnOnce()>>,
    /// Where the calls of `malloc` for such objects return to.
    sites: Vec<usize>,
    /// The last object was allocated: no exception has ended Python's code before.
    complete: bool,
}

impl GilTrap {
    /// Bytes of the object. A signal handler may allocate meanwhile: nothing else asks for just so many.
    const SIZE: usize = LARGE_OBJECT + 51_240;
    /// Bytes that PyPy may ask for beyond the object's size, for its header.
    pub const ROOM: usize = 64;
    /// How often Python is asked: the exception of a signal handler may end its code before it allocates.
    pub const TRIES: u32 = 20;

    /// Runs `action` with the interpreter's lock held; whether that was possible. `allocate(size)` has Python allocate
    /// one large object of that size.
    pub fn run(allocate: impl Fn(usize), action: impl FnOnce()) -> bool {
        let boxed: Box<dyn FnOnce() + '_> = Box::new(action);
        // SAFETY: only the lifetime changes: `take` removes the trap before this function returns.
        let boxed: Box<dyn FnOnce()> = unsafe { std::mem::transmute(boxed) };
        let mut action = Some(boxed);
        for _ in 0..Self::TRIES {
            Self::set(action);
            allocate(Self::SIZE);
            let Some(trap) = Self::take() else {
                return false;
            };
            if trap.action.is_none() {
                return true;
            }
            action = trap.action;
        }
        false
    }

    /// Where PyPy's calls of `malloc` for large objects return to. `allocate(size)` has Python allocate large objects of
    /// that size, of each kind, and as the last one that is [`Self::ROOM`] bytes larger. `None` if the last one was not
    /// allocated.
    pub fn sites(allocate: impl Fn(usize)) -> Option<Vec<usize>> {
        (0..Self::TRIES).find_map(|_| {
            Self::set(None);
            allocate(Self::SIZE);
            let trap = Self::take()?;
            trap.complete.then_some(trap.sites)
        })
    }

    fn set(action: Option<Box<dyn FnOnce()>>) {
        let trap = Self {
            action,
            sites: Vec::new(),
            complete: false,
        };
        TRAP.store(Box::into_raw(Box::new(trap)), Ordering::Relaxed);
        THREAD.store(thread_pointer(), Ordering::Relaxed);
    }

    fn take() -> Option<Box<Self>> {
        THREAD.store(0, Ordering::Relaxed);
        let trap = TRAP.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: what `set` stored came from a box, and was swapped out by nobody else.
        (!trap.is_null()).then(|| unsafe { Box::from_raw(trap) })
    }

    /// In the child of a fork: removes the trap, unless this thread has set it. Other threads are not in the child.
    pub fn forget_other_threads() {
        if !Self::is_set() {
            THREAD.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread allocates because the agent has asked it to.
    pub fn is_set() -> bool {
        THREAD.load(Ordering::Relaxed) == thread_pointer()
    }

    /// Called at each large allocation: of `size` bytes, by a call that returns to `site`. Whether it was the one that
    /// `action` has been run in.
    pub fn visit(size: usize, site: usize) -> bool {
        if !Self::is_set() {
            return false;
        }
        let over = size.wrapping_sub(Self::SIZE);
        // SAFETY: this thread has set the trap and not removed it; no other thread uses it.
        let trap = unsafe { &mut *TRAP.load(Ordering::Relaxed) };
        if over < Self::ROOM {
            if let Some(action) = trap.action.take() {
                action();
                return true;
            }
            if !trap.sites.contains(&site) {
                trap.sites.push(site);
            }
        } else if over < 2 * Self::ROOM {
            trap.complete = true;
        }
        false
    }
}
