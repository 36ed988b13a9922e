//! The GIL trap: a way for C code that Python calls to get the interpreter's lock.
//!
//! Python calls C functions without the lock, on PyPy even `ctypes.PyDLL`'s. But PyPy holds the lock whenever it
//! allocates an object. So the agent makes Python allocate one large object of a certain size, and does its work inside
//! the `malloc` that PyPy calls for this object.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use nthbyte_rpython::binary::{LARGE_OBJECT, thread_pointer};

/// The thread (its thread pointer) that has set a trap; 0 if no trap is set.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The trap, which only that thread reads.
static TRAP: AtomicPtr<GilTrap> = AtomicPtr::new(std::ptr::null_mut());

/// The action to run when the calling thread allocates a large object of the requested size.
pub struct GilTrap {
    /// The action. `None`: record the return addresses of the `malloc` calls.
    action: Option<Box<dyn FnOnce()>>,
    /// The return addresses of the `malloc` calls for such objects.
    sites: Vec<usize>,
    /// Whether the last object was allocated. If not, an exception has ended Python's code earlier.
    complete: bool,
}

impl GilTrap {
    /// Size of the object in bytes. A signal handler may allocate meanwhile, so this is a size that no
    /// other code requests.
    const SIZE: usize = LARGE_OBJECT + 51_240;
    /// Bytes that PyPy may ask for beyond the object's size, for its header.
    pub const ROOM: usize = 64;
    /// The largest number of attempts: an exception from a signal handler may end Python's code before it
    /// allocates.
    pub const TRIES: u32 = 20;

    /// Runs `action` with the interpreter's lock held. Returns whether that was possible. `allocate(size)` makes
    /// Python allocate one large object of that size.
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

    /// The return addresses of PyPy's `malloc` calls for large objects. `allocate(size)` makes Python allocate large
    /// objects of that size, one of each kind, and then one that is [`Self::ROOM`] bytes larger. `None` if that last
    /// object was not allocated.
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
        // SAFETY: the pointer that `set` stored came from a box, and no other code has swapped it
        // out.
        (!trap.is_null()).then(|| unsafe { Box::from_raw(trap) })
    }

    /// Removes the trap in the child of a fork, unless this thread has set it. Other threads do not exist in the
    /// child.
    pub fn forget_other_threads() {
        if !Self::is_set() {
            THREAD.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread allocates at the request of the agent.
    pub fn is_set() -> bool {
        THREAD.load(Ordering::Relaxed) == thread_pointer()
    }

    /// Called at each large allocation, with its size in bytes and the return address of the call. Returns whether
    /// `action` was run in it.
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
