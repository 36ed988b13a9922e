//! How a session handles forks.
//!
//! A session learns of a fork in one place, at the start of a recording, from one word: its [`State`](crate::fork_state::State). The functions
//! that run around a fork change only that word, the lock, and the writer thread.
//!
//! ```text
//!               fork, in the parent            next recording       250 ms later, or at let_writer_run
//! Undisturbed ──────────────────────▶ Forked ──────────────────▶ WriterAway ─────────────▶ Undisturbed
//!      │        fork, in the child              next recording, in a new epoch
//!      └────────────────────────────▶ Child ─────────────────────────────────────────────▶ Undisturbed
//! ```
//!
//! - *Before the fork* the forking thread takes the lock, so that no recording is half done in the child, and stops the
//!   writer thread: CPython 3.12 and later warn of a fork in a process with more than one thread. Both waits have a
//!   limit. If the writer thread is in a write that does not end, the fork continues without it.
//! - *In the parent* the writer thread starts again at once, unless the host says ([`Host::counts_threads`](crate::Host::counts_threads)) that the process's
//!   threads are about to be counted. Then it starts when the host calls [`let_writer_run`]; the parent may record
//!   nothing for hours. If the host cannot do that in time, the thread starts 250 ms after the next recording. A signal
//!   that ends the process waits for the thread.
//! - *In the child* the lock is free. Everything recorded so far belongs to the parent. The next recording begins a
//!   profile with its own file, in a new epoch. The child does not touch what the parent's writer thread uses. If it has
//!   forked too by then, its writer thread is away as in a parent: even the file that the interpreter opens to count
//!   its threads takes memory that may be sampled.

use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::cancellation::uncancelled;
use crate::exit;
use crate::guard::guarded;
use crate::missing;
use crate::recording::begin_with_lock;
use crate::registry::{self, Slot};
use crate::termination;
use crate::ticks::TICKS;

/// Installs the fork handlers once, for all sessions of this process.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        );
    });
}

/// See [`forks`].
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of forks that this process was part of, as the parent or as the child, since the first session began. It
/// tells children of one process apart, and is the same when a program runs again.
#[must_use]
pub fn forks() -> u64 {
    FORKS.load(Relaxed)
}

/// Counts the forks that lead to this process: a child has one more than its parent.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies a process, so that a child knows that what its memory says of timers and the like is about its parent's.
///
/// The number alone does not suffice: a child in a new PID namespace may have the same one as its parent. Nor do forks:
/// the C library does not know of all of them (`clone`, `_Fork`). Only a child of both kinds is taken for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    number: u32,
    pub(crate) generation: u32,
}

impl ProcessIdentity {
    /// The identity of this process. The first call counts forks from then on, if no session has begun.
    #[must_use]
    pub fn of_this() -> Self {
        watch();
        Self {
            number: std::process::id(),
            generation: GENERATION.load(Relaxed),
        }
    }
}

/// Whether a session of this process has a profile: the child of a fork has none before its first recording.
#[must_use]
pub fn has_profile() -> bool {
    registry::slots().any(|slot| slot.is_running() && !slot.fork.is_child())
}

/// Starts the writer thread that a fork has stopped. If a thread is inside a recording for long, its next one starts the
/// writer thread.
pub fn let_writer_run() {
    for slot in registry::slots().filter(|slot| slot.is_running()) {
        // If another thread has the lock, its next recording starts the thread.
        if slot.fork.let_writer_run() && slot.lock.acquire() {
            drop(begin_with_lock(slot, None));
        }
    }
}

extern "C" fn before_fork() {
    FORKS.fetch_add(1, Relaxed);
    // The wait for the writer thread's end is a join.
    uncancelled(|| registry::slots().for_each(|slot| slot.before_fork()));
    TICKS.before_fork();
}

extern "C" fn after_fork_in_parent() {
    TICKS.after_fork_in_parent();
    registry::slots().for_each(|slot| slot.after_fork_in_parent());
    // If the fork has failed, `errno` says why.
    // SAFETY: the address of this thread's `errno` is valid as long as the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    guarded(|| {
        let are_counted = |slot: &Slot| slot.is_running() && slot.host.host.counts_threads();
        if !registry::slots().any(are_counted) {
            uncancelled(let_writer_run);
        }
    });
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Relaxed);
    missing::after_fork_in_child();
    termination::after_fork_in_child();
    exit::after_fork_in_child();
    TICKS.after_fork_in_child();
    registry::slots().for_each(|slot| slot.after_fork_in_child());
}
