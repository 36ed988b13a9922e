//! Which process this is: a forked child has its parent's memory.

use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Counts the forks that lead to this process: a child has one more than its parent.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies a process, so that a child knows that what its memory says of timers and the like is about its parent's.
///
/// The number alone does not suffice: a child in a new PID namespace may have the same one as its parent. Nor do forks:
/// the C library does not know of all of them (`clone`, `_Fork`). Only a child of both kinds is taken for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    number: u32,
    generation: u32,
}

impl ProcessIdentity {
    /// The identity of this process. The first call counts forks from then on.
    #[must_use]
    pub fn of_this() -> Self {
        static ONCE: Once = Once::new();
        extern "C" fn in_child() {
            GENERATION.fetch_add(1, Relaxed);
        }
        // SAFETY: the handler is a function of this library, which is never unloaded.
        ONCE.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
        Self {
            number: std::process::id(),
            generation: GENERATION.load(Relaxed),
        }
    }

    /// The number of forks that led to it.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}
