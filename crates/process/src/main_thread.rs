//! The end of the main thread before the end of the process (`pthread_exit`).
//!
//! The C library calls `exit` in the last thread that ends. The writer thread would stay when all others have ended, and
//! the process with it; not even a signal would end it, for that thread blocks all. So when the main thread ends, another
//! thread stands in for it: it waits until the program has no thread any more, and ends the session. Then it is the last.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use nthbyte_host::process::ThreadList;
use nthbyte_host::threads::{BlockedSignals, is_writer_thread};
use nthbyte_session::native;

use crate::unless_held;

/// Between two looks at the threads of the process.
const PAUSE: Duration = Duration::from_millis(50);
/// After so many looks in a row that told nothing, a minute, the program may have no thread any more.
const MOST_FAILED: u32 = 1200;

/// The list of the process's threads, once the main one has ended: later, the program may have no descriptor left, or be
/// in a folder without `/proc` (`chroot`).
static LIST: Mutex<Option<ThreadList>> = Mutex::new(None);

/// A variable of the main thread alone: the C library calls [`ended`] when that thread ends, but not at `exit`.
struct Watch {
    key: libc::pthread_key_t,
    /// Ends the session.
    end: fn(),
}

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Watches the main thread, which calls this: when that has ended, and the program has no other thread any more, `end`
/// ends the session. Another thread may call this too: then the main threads of its forks are watched. The calling code is
/// never unloaded.
pub fn watch(end: fn()) {
    let mut key = 0;
    // SAFETY: a place for the key, and a function that is never unloaded.
    if WATCH.get().is_none() && unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0
    {
        let _ = WATCH.set(Watch { key, end });
    }
    // SAFETY: no preconditions.
    if unsafe { libc::gettid() == libc::getpid() } {
        watch_in_child();
    }
}

/// Called in the child of a fork, whose main thread is the one that has forked.
pub fn watch_in_child() {
    // The threads of the parent.
    close_list();
    if let Some(watch) = WATCH.get() {
        // SAFETY: the key was made. Any value but null will do.
        unsafe { libc::pthread_setspecific(watch.key, (&raw const WATCH).cast()) };
    }
}

unsafe extern "C" fn ended(_: *mut c_void) {
    if !crate::is_running() {
        return;
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut thread = 0;
    // SAFETY: the attributes are initialised before their use, and destroyed after it. Without a thread, the process
    // waits for a signal that ends it at once. The thread takes no signal: another one of the program may wait for it.
    native::unobserved(|| unsafe {
        open_list();
        let _signals = BlockedSignals::all();
        if libc::pthread_attr_init(attributes) == 0 {
            libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
            if libc::pthread_create(&raw mut thread, attributes, stand_in, null_mut()) != 0 {
                close_list();
            }
            libc::pthread_attr_destroy(attributes);
        }
    });
}

extern "C" fn stand_in(_: *mut c_void) -> *mut c_void {
    let waited = catch_unwind(|| {
        native::unobserved(|| {
            wait(has_threads, || std::thread::sleep(PAUSE));
            close_list();
        });
    });
    // Dropping what a panic carries may panic again.
    std::mem::forget(waited);
    if let Some(watch) = WATCH.get() {
        (watch.end)();
    }
    null_mut()
}

/// Looks until the program has no thread any more. If the system does not tell for a minute, the wait ends too: the session
/// ends early then, and the process with its last thread.
fn wait(mut has_threads: impl FnMut() -> Option<bool>, mut pause: impl FnMut()) {
    let mut failed = 0;
    while failed < MOST_FAILED {
        match has_threads() {
            Some(false) => return,
            Some(true) => failed = 0,
            None => failed += 1,
        }
        pause();
    }
}

/// Opens the list, to keep it. Not where it would have a number that the program's next file has without it.
fn open_list() {
    let Some(opened) = ThreadList::open() else {
        return;
    };
    match unless_held(&LIST) {
        Some(mut list) if opened.is_out_of_the_way() => *list = Some(opened),
        _ => opened.close(),
    }
}

fn close_list() {
    if let Some(opened) = unless_held(&LIST).and_then(|mut list| list.take()) {
        opened.close();
    }
}

/// Whether the program has a thread besides the main one. `None` if the system does not tell.
fn has_threads() -> Option<bool> {
    // SAFETY: no preconditions.
    let own = unsafe { [libc::getpid(), libc::gettid()] };
    let is_own = |thread: c_int| own.contains(&thread) || is_writer_thread(thread);
    let kept = unless_held(&LIST).and_then(|list| *list);
    kept.and_then(|list| list.has_others(is_own)).or_else(|| {
        // The program has closed it, or it was not kept.
        let opened = ThreadList::open()?;
        let answer = opened.has_others(is_own);
        opened.close();
        answer
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_thread_or_after_a_minute_without_an_answer() {
        let looks = |answer: fn(u32) -> Option<bool>| {
            let (mut looks, mut pauses) = (0, 0);
            let look = || {
                looks += 1;
                answer(looks)
            };
            wait(look, || pauses += 1);
            (looks, pauses)
        };
        assert_eq!(looks(|look| Some(look < 5000)), (5000, 4999));
        assert_eq!(looks(|_| None), (1200, 1200));
        // A single answer begins the minute anew.
        let once = |look| (look == 1000).then_some(true);
        assert_eq!(looks(once), (2200, 2200));
    }
}
