//! Getting the interpreter's lock.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::binary::{LARGE_OBJECT, thread_pointer};

/// The thread (its thread pointer) that has set a trap; 0 if none has.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The trap, which only that thread looks at.
static TRAP: AtomicPtr<GilTrap> = AtomicPtr::new(std::ptr::null_mut());

/// Waits for an allocation of the calling thread, which shows that it holds the interpreter's lock.
///
/// Foreign functions are called without the lock, on PyPy even from `ctypes.PyDLL`. But a large object
/// is always allocated with it.
pub struct GilTrap {
    /// What to do then. Not set: note the places that ask for it.
    action: Option<Box<dyn FnOnce()>>,
    sites: Vec<usize>,
    /// All was allocated that was asked for.
    complete: bool,
}

impl GilTrap {
    /// The size that is waited for, in bytes. A signal handler may run meanwhile; nobody else will ask for just this.
    const SIZE: usize = LARGE_OBJECT + 51_240;
    /// An object may take as many bytes more, for its header.
    pub const ROOM: usize = 64;
    /// How often Python is asked: a signal handler that raises can keep it from what it is asked for.
    pub const TRIES: u32 = 20;

    /// Calls `allocate` with a size; when the interpreter allocates a large object of that size
    /// in it, `action` is called, with the lock held. Whether that happened.
    pub fn run(allocate: impl Fn(usize), action: impl FnOnce()) -> bool {
        let boxed: Box<dyn FnOnce() + '_> = Box::new(action);
        // SAFETY: only the lifetime changes: the trap is taken down before this function returns.
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

    /// Calls `allocate` with a size, which allocates large objects of that size, of each kind, and one of
    /// [`Self::ROOM`] bytes more as the last; the places in the library that asked for the memory. `None` if there was
    /// no last one.
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

    /// In the child of a fork: the thread that has set a trap is gone, unless it is this one.
    pub fn forget_other_threads() {
        if !Self::is_set() {
            THREAD.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread allocates because the agent has asked it to.
    pub fn is_set() -> bool {
        THREAD.load(Ordering::Relaxed) == thread_pointer()
    }

    /// An allocation of `size` bytes, asked for by the code at `site`. Whether it was waited for.
    pub fn visit(size: usize, site: usize) -> bool {
        if !Self::is_set() {
            return false;
        }
        let over = size.wrapping_sub(Self::SIZE);
        // SAFETY: this thread has set the trap and not taken it down; no other touches it.
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
