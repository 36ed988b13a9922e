//! Getting the interpreter's lock.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::handler::thread_pointer;
use super::search::LARGE_OBJECT;

/// The thread (its thread pointer) that has set a trap; 0 if none has.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The trap, which only that thread looks at.
static TRAP: AtomicPtr<Trap> = AtomicPtr::new(std::ptr::null_mut());

/// Waits for an allocation of the calling thread, which shows that it holds the interpreter's lock.
///
/// Foreign functions are called without the lock, on PyPy even from `ctypes.PyDLL`. But a large object
/// is always allocated with it.
pub struct Trap {
    /// The size that is waited for.
    size: usize,
    /// What to do then. Not set: note the place that allocates large objects.
    action: Option<Box<dyn FnOnce()>>,
    /// Places in the library that allocate large objects.
    pub sites: Vec<usize>,
}

impl Trap {
    /// Calls `allocate` with a size; when the interpreter allocates a large object of that size
    /// in it, `action` is called, with the lock held. Whether that happened.
    pub fn run(allocate: impl FnOnce(usize), action: impl FnOnce()) -> bool {
        let ran = std::rc::Rc::new(std::cell::Cell::new(false));
        let flag = ran.clone();
        let boxed: Box<dyn FnOnce() + '_> = Box::new(move || {
            action();
            flag.set(true);
        });
        // SAFETY: only the lifetime changes: the trap is taken down before this function returns.
        let boxed: Box<dyn FnOnce()> = unsafe { std::mem::transmute(boxed) };
        let size = LARGE_OBJECT + 51_240;
        Self::set(Self {
            size,
            action: Some(boxed),
            sites: Vec::new(),
        });
        allocate(size);
        drop(Self::take());
        ran.get()
    }

    /// Calls `allocate`, which allocates large objects of each kind and nothing else that is large;
    /// the places in the library that asked for the memory.
    pub fn sites(allocate: impl FnOnce(usize)) -> Vec<usize> {
        Self::set(Self {
            size: LARGE_OBJECT,
            action: None,
            sites: Vec::new(),
        });
        allocate(LARGE_OBJECT + 8192);
        Self::take().map(|trap| trap.sites).unwrap_or_default()
    }

    fn set(trap: Self) {
        TRAP.store(Box::into_raw(Box::new(trap)), Ordering::Relaxed);
        THREAD.store(thread_pointer(), Ordering::Relaxed);
    }

    fn take() -> Option<Box<Self>> {
        THREAD.store(0, Ordering::Relaxed);
        let trap = TRAP.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: what `set` stored came from a box, and was swapped out by nobody else.
        (!trap.is_null()).then(|| unsafe { Box::from_raw(trap) })
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
        // SAFETY: this thread has set the trap and not taken it down; no other touches it.
        unsafe {
            let trap = TRAP.load(Ordering::Relaxed);
            if (*trap).action.is_none() {
                if size >= (*trap).size && !(*trap).sites.contains(&site) {
                    (*trap).sites.push(site);
                }
            } else if ((*trap).size..(*trap).size + 64).contains(&size)
                && let Some(action) = (*trap).action.take()
            {
                action();
                return true;
            }
        }
        false
    }
}
