//! How a session handles forks.
//!
//! A session learns of a fork in one place, at the start of a recording, from one word: its [`State`](crate::fork_state::State). The functions
//! that run around a fork change only that word, the lock, and the writer thread.
//!
//! ```text
//!               fork, in the parent            next recording              250 ms later
//! Undisturbed ──────────────────────▶ Forked ──────────────────▶ WriterAway ─────────────▶ Undisturbed
//!      │        fork, in the child              next recording, in a new epoch
//!      └────────────────────────────▶ Child ─────────────────────────────────────────────▶ Undisturbed
//! ```
//!
//! - *Before the fork* the forking thread takes the lock, so that no recording is half done in the child, and stops the
//!   writer thread: CPython 3.12 and later warn of a fork in a process with more than one thread. Both waits have a
//!   limit. If the writer thread is in a write that does not end, the fork continues without it.
//! - *In the parent* the writer thread starts again 250 ms after the next recording, because the interpreter must count
//!   its threads before that.
//! - *In the child* the lock is free. Everything recorded so far belongs to the parent. The next recording begins a
//!   profile with its own file, in a new epoch. The child does not touch what the parent's writer thread uses. If it has
//!   forked too by then, its writer thread is away as in a parent: even the file that the interpreter opens to count
//!   its threads takes memory that may be sampled.

use std::sync::Once;

use crate::cancellation::uncancelled;
use crate::registry;
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

extern "C" fn before_fork() {
    // The wait for the writer thread's end is a join.
    uncancelled(|| registry::slots().for_each(|slot| slot.before_fork()));
    TICKS.before_fork();
}

extern "C" fn after_fork_in_parent() {
    TICKS.after_fork_in_parent();
    registry::slots().for_each(|slot| slot.after_fork_in_parent());
}

extern "C" fn after_fork_in_child() {
    termination::after_fork_in_child();
    TICKS.after_fork_in_child();
    registry::slots().for_each(|slot| slot.after_fork_in_child());
}
