//! A thread that does not use the library's thread-local data, and whose start does not either.
//!
//! The dynamic loader allocates the thread-local data of a library when a thread first uses it, and ends the process if
//! there is no memory. `std::thread` uses such data in the new thread, and in the thread that starts it, which is one
//! of the program's. (A panic uses it too, but there is none unless this library has an error.)

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};
use std::time::{Duration, Instant};

use super::cancellation::uncancelled;
use super::signals::BlockedSignals;
use crate::exit;
use crate::preload;

/// What the thread uses of its stack, at most. The thread has no deep calls.
const STACK_BYTES: usize = 256 << 10;

/// The size of the stack: the C library puts the thread-local data of the program and its libraries into it as well, which
/// may be much.
fn stack_bytes(attributes: *const libc::pthread_attr_t) -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    /// The look-up takes the dynamic linker's lock. The first thread starts with the session, the others where no thread
    /// may wait for that lock.
    // No `OnceLock`: the child of a fork must not wait for a thread that it does not have.
    static LEAST: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    if !IS_KNOWN.load(Acquire) {
        // The standard library asks the same function of glibc.
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        LEAST.store(found, Relaxed);
        IS_KNOWN.store(true, Release);
    }
    // SAFETY: the function of this name has this type; without one, there is no address.
    let least = unsafe { std::mem::transmute::<*mut c_void, Option<Least>>(LEAST.load(Relaxed)) };
    // SAFETY: the attributes are initialised.
    STACK_BYTES + least.map_or(0, |least| unsafe { least(attributes) })
}

/// The longest time that the system may need to remove a thread that has ended. It usually needs microseconds, but that
/// thread must get a processor first.
const LONGEST_REMOVAL: Duration = Duration::from_secs(if cfg!(any(test, feature = "test-seams")) {
    600
} else {
    1
});

/// The system's numbers of the threads that run; 0 in a place that is free. A session may end while the next one has begun.
static RUNNING: [AtomicI32; 4] = [const { AtomicI32::new(0) }; 4];

/// Whether a thread of this process, by the system's number, is nthbyte's writer thread, or one that works for it.
#[must_use]
pub fn is_writer_thread(number: i32) -> bool {
    number != 0
        && RUNNING
            .iter()
            .any(|running| running.load(Relaxed) == number)
}

/// The system's name of the calling thread.
pub fn name_of_thread() -> Option<String> {
    let mut name = [0_u8; 16];
    // SAFETY: the call writes 16 bytes at most.
    let failed = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } != 0;
    let text = name.split(|&byte| byte == 0).next()?;
    (!failed && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// CPU time of these threads, in milliseconds. Safe in a signal handler.
pub fn cpu_millis() -> u32 {
    let running = RUNNING.iter().map(|running| running.load(Relaxed));
    let nanos: u64 = running
        .filter(|&number| number != 0)
        .filter_map(crate::clock::thread_cpu)
        .sum();
    (nanos / 1_000_000) as u32
}

/// A thread is in the list until this is dropped: when its number may be another thread's, it is not in there.
struct Listed(i32);

impl Listed {
    fn new(number: i32) -> Self {
        let take = |place: &&AtomicI32| {
            let taken = place.compare_exchange(0, number, Relaxed, Relaxed);
            taken.is_ok()
        };
        // Without a free place, the thread is not known.
        let _ = RUNNING.iter().find(take);
        Self(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        for place in &RUNNING {
            let _ = place.compare_exchange(self.0, 0, Relaxed, Relaxed);
        }
    }
}

/// A running thread. Dropping it lets the thread run on.
pub struct OsThread {
    /// `None` after [`OsThread::join`].
    thread: Option<libc::pthread_t>,
    /// The system's number of the thread. 0 until it runs.
    number: Arc<AtomicI32>,
}

impl OsThread {
    /// Starts a thread that inherits the signal mask of the caller. If that fails, `work` is dropped.
    pub fn spawn<W: FnOnce() + Send + 'static>(work: W) -> io::Result<Self> {
        let number = Arc::new(AtomicI32::new(0));
        let own_number = Arc::clone(&number);
        let parcel = Box::into_raw(Box::new(move || {
            // SAFETY: always succeeds.
            let number = unsafe { libc::gettid() };
            own_number.store(number, Relaxed);
            let _listed = Listed::new(number);
            work();
        }));
        Self::run(parcel).map(|thread| Self {
            thread: Some(thread),
            number,
        })
    }

    fn run<W: FnOnce() + Send + 'static>(parcel: *mut W) -> io::Result<libc::pthread_t> {
        let mut thread = 0;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised before their use and destroyed after it. The new thread owns the
        // parcel, which has the type that `enter` expects.
        let error = unsafe {
            match libc::pthread_attr_init(attributes) {
                0 => {
                    libc::pthread_attr_setstacksize(attributes, stack_bytes(attributes));
                    let error = libc::pthread_create(
                        &raw mut thread,
                        attributes,
                        enter::<W>,
                        parcel.cast(),
                    );
                    libc::pthread_attr_destroy(attributes);
                    error
                }
                error => error,
            }
        };
        if error == 0 {
            return Ok(thread);
        }
        // SAFETY: no thread was started, so the parcel is still ours.
        drop(unsafe { Box::from_raw(parcel) });
        Err(io::Error::from_raw_os_error(error))
    }

    /// Waits until the process does not have the thread any more. CPython counts the threads at a fork, and warns of
    /// more than one; the kernel still counts one that `pthread_join` has waited for, while it closes its files.
    pub fn join(mut self) {
        if exit::has_begun() {
            // The C library would take locks for it.
            std::mem::forget(self);
            return;
        }
        if let Some(thread) = self.thread.take() {
            // SAFETY: the thread was neither joined nor detached.
            uncancelled(|| unsafe { libc::pthread_join(thread, std::ptr::null_mut()) });
        }
        let (number, start) = (self.number.load(Relaxed), Instant::now());
        // SAFETY: the signal 0 is not sent: the call says whether there is such a thread.
        while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, 0) } == 0
            && start.elapsed() < LONGEST_REMOVAL
        {
            std::thread::yield_now();
        }
    }
}

impl Drop for OsThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread
            && !exit::has_begun()
        {
            // SAFETY: the thread was neither joined nor detached.
            unsafe { libc::pthread_detach(thread) };
        }
    }
}

/// Whether [`in_own_thread`] was called.
static HAD_ONE: AtomicBool = AtomicBool::new(false);

/// Runs `work` in a thread of its own, whose requests are not the program's, and waits for it. If there can be no thread,
/// it does not run.
///
/// With the stack of the thread, the C library keeps memory that another one needs: from then on, a thread can start while
/// the lock of `malloc` is held for ever.
pub fn in_own_thread(work: fn()) {
    HAD_ONE.store(true, Relaxed);
    let _ = run(work);
}

/// Runs `work` in a thread of its own, whose requests are not the program's, and waits for it.
pub fn run(work: fn()) -> io::Result<()> {
    let _signals = BlockedSignals::all();
    let spawned = OsThread::spawn(move || {
        preload::ignore_thread();
        work();
    });
    spawned.map(OsThread::join)
}

/// Has the C library keep what a thread needs. Costs as much as a thread, once in a process.
pub fn prepare() {
    if !HAD_ONE.load(Relaxed) {
        in_own_thread(|| ());
    }
}

extern "C" fn enter<W: FnOnce()>(parcel: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` passes a parcel of this type, which this thread owns.
    let work = unsafe { Box::from_raw(parcel.cast::<W>()) };
    // SAFETY: the name is a terminated string of less than 16 bytes.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"nthbyte".as_ptr()) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
        // Dropping the payload may panic again.
        std::mem::forget(payload);
    }
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_runs_and_can_be_waited_for() {
        let (sender, receiver) = channel();
        let thread = OsThread::spawn(move || {
            // SAFETY: no preconditions.
            let own = unsafe { libc::gettid() };
            sender.send((own, is_writer_thread(own))).unwrap();
        })
        .unwrap();
        thread.join();
        let (number, is_listed) = receiver.try_recv().unwrap();
        assert!(is_listed && !is_writer_thread(number));
        for _ in 0..100 {
            let thread = OsThread::spawn(|| assert!(crate::process::keep_only(2))).unwrap();
            let number = Arc::clone(&thread.number);
            thread.join();
            let task = format!("/proc/self/task/{}", number.load(Relaxed));
            assert!(!std::path::Path::new(&task).exists());
        }
        // A panic ends only the thread.
        OsThread::spawn(|| panic!("a test wanted it"))
            .unwrap()
            .join();
    }
}
