//! The program's events that are in no profile.
//!
//! *Interpreters with their own GIL*: their hosts do not sample them, and [say](interpreter_ran) that they run.
//!
//! *Forked children whose profile could not be created*: they have given up their rights, or have no descriptor left, or
//! the folder is not there any more. They cannot say so themselves, for nobody reads what a child of a server prints. So the first process of the family
//! shares a page with its forks; each child without a file counts itself there, and the first process writes it to its profile
//! and says it at its end.
//! What a child starts with another program's start method (`spawn`) does not have the page, and says so at its start.

use std::process;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nthbyte_host::sync::{AtomicPtr, AtomicU8, AtomicU32, constant};
use nthbyte_profile::Missing;

/// The longest reason that is kept, in bytes.
const LONGEST: usize = 512;

constant! {
    /// The page of this process's family. It takes memory only when a child is missing.
    static SHARED: AtomicPtr<FamilyCounts> = AtomicPtr::new(null_mut());
}
constant! {
    /// The one of the session before.
    static BEFORE: AtomicPtr<FamilyCounts> = AtomicPtr::new(null_mut());
}
constant! {
    /// The process whose end says it.
    static FIRST: AtomicU32 = AtomicU32::new(0);
}

/// Whether an interpreter with its own GIL ran in this process during the session.
static INTERPRETERS: AtomicBool = AtomicBool::new(false);

struct FamilyCounts {
    /// Children without a file.
    children: AtomicU32,
    /// Whether a child writes the reason, or has written it.
    is_taken: AtomicU8,
    is_written: AtomicU8,
    reason: [AtomicU8; LONGEST],
}

/// Called when a session begins in this process; not in the child of a fork.
pub(crate) fn begin() {
    FIRST.store(process::id(), Relaxed);
    INTERPRETERS.store(false, Relaxed);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: new pages, which are zero: a valid `FamilyCounts`.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            size_of::<FamilyCounts>(),
            protection,
            flags,
            -1,
            0,
        )
    };
    let page = if mapped == libc::MAP_FAILED {
        null_mut()
    } else {
        mapped.cast()
    };
    let before = SHARED.swap(page, Release);
    // The page of an earlier session, or of the parent's, whose children have it too. Where memory runs out, the writer
    // thread of that session may still look at it, for a moment: so it goes when the next session begins.
    let oldest = BEFORE.swap(before, Release);
    if !oldest.is_null() {
        // SAFETY: it was mapped above, with this size, and a whole session lies between it and this one.
        unsafe { libc::munmap(oldest.cast(), size_of::<FamilyCounts>()) };
    }
}

/// Counts this process, whose file could not be created.
pub(crate) fn count(reason: &str) {
    // SAFETY: `begin` has mapped it.
    let Some(shared) = (unsafe { SHARED.load(Acquire).as_ref() }) else {
        return;
    };
    if shared.is_taken.swap(1, Relaxed) == 0 {
        let mut length = reason.len().min(LONGEST);
        while !reason.is_char_boundary(length) {
            length -= 1;
        }
        for (to, byte) in shared.reason.iter().zip(&reason.as_bytes()[..length]) {
            to.store(*byte, Relaxed);
        }
        if let Some(end) = shared.reason.get(length) {
            end.store(0, Relaxed);
        }
        shared.is_written.store(1, Release);
    }
    shared.children.fetch_add(1, Relaxed);
}

/// Called where memory is allocated for an interpreter with its own GIL: often, and by any thread.
pub fn interpreter_ran() {
    // Threads of several interpreters only read the line after the first call.
    if !INTERPRETERS.load(Relaxed) {
        INTERPRETERS.store(true, Relaxed);
    }
}

/// Only the thread that forks is in the child, so other interpreters may not run there.
pub(crate) fn after_fork_in_child() {
    INTERPRETERS.store(false, Relaxed);
}

/// The missing events until now in this process, and among its children if it is the first one of its family.
pub(crate) fn now() -> Missing {
    let mut missing = Missing {
        interpreters: INTERPRETERS.load(Relaxed),
        ..Missing::default()
    };
    if FIRST.load(Relaxed) != process::id() {
        return missing;
    }
    // SAFETY: as above.
    let Some(shared) = (unsafe { SHARED.load(Acquire).as_ref() }) else {
        return missing;
    };
    missing.children = shared.children.load(Relaxed).into();
    if shared.is_written.load(Acquire) != 0 {
        let bytes = shared.reason.iter().map(|byte| byte.load(Relaxed));
        let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        missing.reason = String::from_utf8_lossy(&bytes).into_owned();
    }
    missing
}
