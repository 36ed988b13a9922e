//! The end of the main thread before that of the process (`pthread_exit`).
//!
//! The C library calls `exit` in the last thread that ends. The writer thread would stay when all others have ended, and
//! the process with it; not even a signal would end it, for that thread blocks all. So when the main thread ends, another
//! thread stands in for it: it waits until the program has no thread any more, and ends the session. Then it is the last.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::catch_unwind;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::Duration;

use nthbyte_session::{BlockedSignals, native};

/// Between two looks at the threads of the process.
const PAUSE: Duration = Duration::from_millis(50);

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
        let _signals = BlockedSignals::all();
        if libc::pthread_attr_init(attributes) == 0 {
            libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_create(&raw mut thread, attributes, stand_in, null_mut());
            libc::pthread_attr_destroy(attributes);
        }
    });
}

extern "C" fn stand_in(_: *mut c_void) -> *mut c_void {
    let waited = catch_unwind(|| {
        native::unobserved(|| {
            while has_threads() {
                std::thread::sleep(PAUSE);
            }
        });
    });
    // Dropping what a panic carries may panic again.
    std::mem::forget(waited);
    if let Some(watch) = WATCH.get() {
        (watch.end)();
    }
    null_mut()
}

/// Whether the program has a thread besides the main one. If the system does not tell, it may have.
fn has_threads() -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return true;
    };
    // SAFETY: no preconditions.
    let own = unsafe { [libc::getpid(), libc::gettid()] };
    let is_own = |thread: &std::fs::DirEntry| {
        let number = thread.file_name().to_str().map(str::parse);
        let is_writer =
            || std::fs::read(thread.path().join("comm")).is_ok_and(|name| name == b"nthbyte\n");
        number.is_some_and(|number| number.is_ok_and(|number: i32| own.contains(&number)))
            || is_writer()
    };
    threads.flatten().any(|thread| !is_own(&thread))
}
