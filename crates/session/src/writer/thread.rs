//! The writer thread.

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use nthbyte_profile::event::{End, Nanos};

use super::drain::Drain;
use crate::lost::Lost;
use crate::outcome::Outcome;
use crate::preload;
use crate::process::image;

/// How long the thread sleeps if it is not woken.
const NAP: Duration = Duration::from_millis(200);
/// The size of the thread's stack. The thread has no deep calls.
const STACK_BYTES: usize = 256 << 10;

const NO_END: End = End {
    time: Nanos(0),
    allocated: None,
};

/// A request to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Request {
    /// Continue.
    Work = 0,
    /// Write the content of the ring, return the drain and end.
    Stop = 1,
    /// Write all data and the profile's end, return the outcome and end.
    Finish = 2,
}

/// The result that the thread leaves when it ends.
pub(super) enum Left {
    Drain(Box<Drain>),
    Outcome(Outcome),
    /// The thread has panicked.
    Nothing,
}

/// State that the thread and the recorder share.
pub(crate) struct Shared {
    request: AtomicU8,
    /// Set when no more data will be written.
    is_dead: AtomicBool,
    /// Changes with each progress of the thread.
    progress: AtomicU64,
    pub(super) lost: &'static Lost,
    exchange: Mutex<Exchange>,
    has_left: Condvar,
}

#[derive(Default)]
struct Exchange {
    end: Option<End>,
    left: Option<Left>,
}

impl Shared {
    pub(super) fn new(lost: &'static Lost) -> Self {
        Self {
            request: AtomicU8::new(Request::Work as u8),
            is_dead: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            lost,
            exchange: Mutex::default(),
            has_left: Condvar::new(),
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Relaxed)
    }

    pub(super) fn set_dead(&self) {
        self.is_dead.store(true, Relaxed);
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }

    /// Called by the thread after each progress.
    pub(super) fn go_on(&self) {
        self.progress.store(self.progress() + 1, Relaxed);
    }

    pub(super) fn set_request(&self, request: Request) {
        self.request.store(request as u8, Release);
    }

    fn request(&self) -> Request {
        match self.request.load(Acquire) {
            0 => Request::Work,
            1 => Request::Stop,
            _ => Request::Finish,
        }
    }

    /// Sets the end of the profile, for the request to finish it.
    pub(super) fn set_end(&self, end: End) {
        self.exchange().end = Some(end);
    }

    /// Waits for the thread's result; `None` if there is none within `longest`. With `has_time`, each progress of the
    /// thread restarts the time limit.
    pub(super) fn wait(&self, longest: Duration, has_time: bool) -> Option<Left> {
        let mut exchange = self.exchange();
        loop {
            let progress = self.progress();
            let waited = self
                .has_left
                .wait_timeout_while(exchange, longest, |exchange| exchange.left.is_none());
            exchange = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(left) = exchange.left.take() {
                return Some(left);
            }
            if !has_time || self.progress() == progress {
                return None;
            }
        }
    }

    fn leave(&self, left: Left) {
        self.exchange().left = Some(left);
        self.has_left.notify_all();
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running thread. Dropping it lets the thread run on.
pub(super) struct Running {
    thread: libc::pthread_t,
    /// Set by the thread when it begins. Before that, it needs no wake: it looks at its request first.
    parked: Arc<OnceLock<Thread>>,
}

impl Running {
    pub(super) fn wake(&self) {
        if let Some(thread) = self.parked.get() {
            thread.unpark();
        }
    }

    /// Waits for the end of the thread.
    pub(super) fn join(self) {
        let running = ManuallyDrop::new(self);
        // SAFETY: the thread was created joinable, and is neither joined nor detached yet.
        unsafe { libc::pthread_join(running.thread, std::ptr::null_mut()) };
        // SAFETY: `running` is not used again.
        drop(unsafe { std::ptr::read(&raw const running.parked) });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.thread) };
    }
}

/// What the thread begins with.
struct Start {
    shared: Arc<Shared>,
    drain: Box<Drain>,
    parked: Arc<OnceLock<Thread>>,
}

/// Starts the thread with all signals blocked, because signals belong to the program. Returns the drain if the thread
/// cannot be started.
///
/// The standard library's threads allocate before they call their closure. This one tells the preloaded library first
/// that its requests are not the program's.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    drain: Box<Drain>,
) -> Result<Running, (Box<Drain>, io::Error)> {
    preload::find_interface();
    let parked = Arc::new(OnceLock::new());
    let start = Box::into_raw(Box::new(Start {
        shared: Arc::clone(shared),
        drain,
        parked: Arc::clone(&parked),
    }));
    let signals = BlockedSignals::all();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the attributes are initialised before use and destroyed after it. The thread takes over `start`.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        let error =
            libc::pthread_create(&raw mut thread, &raw const attributes, begin, start.cast());
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    drop(signals);
    if error == 0 {
        return Ok(Running { thread, parked });
    }
    // SAFETY: no thread has taken it over.
    let start = unsafe { Box::from_raw(start) };
    Err((start.drain, io::Error::from_raw_os_error(error)))
}

/// The thread's first function.
extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    preload::ignore_thread();
    // SAFETY: a name of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nthbyte".as_ptr()) };
    // SAFETY: `spawn` passed it to this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // A panic needs no report here: the thread leaves its result.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Start {
            shared,
            drain,
            parked,
        } = *start;
        let _ = parked.set(std::thread::current());
        let leave = LeaveSomething(&shared);
        let left = run(drain, &shared);
        std::mem::forget(leave);
        shared.leave(left);
    }));
    std::ptr::null_mut()
}

/// The loop of the thread. It runs until a request ends it.
fn run(mut drain: Box<Drain>, shared: &Shared) -> Left {
    loop {
        match shared.request() {
            Request::Work => {
                if drain.work(shared) {
                    // Half of this library's mapped pages are not needed until the next block.
                    image::release_again();
                }
                if shared.request() == Request::Work {
                    std::thread::park_timeout(NAP.min(drain.flush_interval()));
                }
            }
            Request::Stop => {
                drain.write_out(shared);
                return Left::Drain(drain);
            }
            Request::Finish => {
                image::release_again();
                let end = shared.exchange().end.unwrap_or(NO_END);
                return Left::Outcome(drain.finish(shared, end));
            }
        }
    }
}

/// Leaves [`Left::Nothing`] if the thread panics, so that no thread waits for it.
struct LeaveSomething<'a>(&'a Shared);

impl Drop for LeaveSomething<'_> {
    fn drop(&mut self) {
        self.0.set_dead();
        self.0.leave(Left::Nothing);
    }
}

/// Blocks all signals in the calling thread until it is dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: a zeroed set is a valid place for `sigfillset` and `pthread_sigmask` to write to.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `pthread_sigmask`.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
