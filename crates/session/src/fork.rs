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
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::threads::uncancelled;
use nthbyte_host::{exit, keep_errno};

use crate::begin::let_writer_run;
use crate::guard::guarded;
use crate::missing;
use crate::registry::{self, SessionSlot};
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

/// Whether a session of this process has a profile: the child of a fork has none before its first recording.
#[must_use]
pub fn has_profile() -> bool {
    registry::slots().any(|slot| slot.is_running() && !slot.fork.is_child())
}

/// The reading of `CLOCK_MONOTONIC` in nanoseconds at which the times of this process's profile begin. `None` without a
/// session, and in the child of a fork before its first recording.
#[must_use]
pub fn clock_start() -> Option<u64> {
    let slot = registry::slots().find(|slot| slot.is_running() && !slot.fork.is_child())?;
    Some(slot.clock().start_nanos())
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
    keep_errno(|| {
        guarded(|| {
            let are_counted =
                |slot: &SessionSlot| slot.is_running() && slot.host.host.counts_threads();
            if !registry::slots().any(are_counted) {
                uncancelled(let_writer_run);
            }
        });
    });
}

extern "C" fn after_fork_in_child() {
    missing::after_fork_in_child();
    termination::after_fork_in_child();
    exit::after_fork_in_child();
    TICKS.after_fork_in_child();
    registry::slots().for_each(|slot| slot.after_fork_in_child());
}
