//! The primitives of `src/sync.rs`, by loom.

use std::cell::Cell;
use std::sync::LockResult;
use std::time::Duration;

use loom::sync::atomic::Ordering;
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
};
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use loom::thread::yield_now as spin_loop;
pub(crate) use loom::thread::yield_now;

pub(crate) use loom::thread::yield_now as sleep_millisecond;

/// A variable is made when it is first used in a run of a model. The value of one need not be a constant.
macro_rules! constant {
    ($(#[$about:meta])* pub static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { $(#[$about])* pub static ref $name: $type = $value; }
    };
    ($(#[$about:meta])* static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { $(#[$about])* static ref $name: $type = $value; }
    };
    ($(#[$about:meta])* $access:vis const fn $($function:tt)*) => {
        $(#[$about])* $access fn $($function)*
    };
}
pub(crate) use constant;

pub(crate) const SPINS: u32 = 1;

loom::thread_local! {
    static THREAD: Cell<usize> = Cell::new(0);
    static TIME: Cell<u64> = Cell::new(0);
}

/// Gives the calling thread a number.
pub(crate) fn be_thread(number: usize) {
    THREAD.with(|thread| thread.set(number << 4));
}

pub(crate) fn this_thread() -> usize {
    let thread = THREAD.with(Cell::get);
    assert_ne!(thread, 0);
    thread
}

/// Lets time pass for the calling thread, and returns the time.
pub(crate) fn pass_time(nanos: u64) -> u64 {
    TIME.with(|time| {
        time.set(time.get() + nanos);
        time.get()
    })
}

/// A word with a queue of threads that sleep.
#[derive(Debug)]
pub(crate) struct FutexWord {
    word: loom::sync::atomic::AtomicU32,
    queue: Mutex<()>,
    wakes: loom::sync::Condvar,
}

impl FutexWord {
    pub(crate) fn new(value: u32) -> Self {
        Self {
            word: loom::sync::atomic::AtomicU32::new(value),
            queue: Mutex::new(()),
            wakes: loom::sync::Condvar::new(),
        }
    }

    pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.word.swap(value, order)
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.word.compare_exchange(current, new, success, failure)
    }
}

/// Like the kernel's, without the time limit: the comparison and the sleep are one step for those that wake.
pub(crate) fn futex_wait(word: &FutexWord, value: u32, _longest: Duration) {
    let queue = word.queue.lock().unwrap();
    if word.word.load(Ordering::SeqCst) == value {
        drop(word.wakes.wait(queue).unwrap());
    }
}

pub(crate) fn futex_wake(word: &FutexWord) {
    let _queue = word.queue.lock().unwrap();
    word.wakes.notify_one();
}

/// A condition whose time limit is either over at once or never.
#[derive(Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        longest: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        while condition(&mut guard) {
            if longest.is_zero() {
                return Ok((guard, true));
            }
            guard = self.0.wait(guard).unwrap();
        }
        Ok((guard, false))
    }
}
