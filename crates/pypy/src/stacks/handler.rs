//! Both sides of PyPy's `_vmprof`: this module calls its handler of SIGPROF, and receives its calls of `write`,
//! `mmap` and `lseek`. All code here is safe in a signal handler; see [`super::vmprof`].

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use nthbyte_host::process::MemoryFile;
use nthbyte_host::set_errno;

use super::record::{
    BUFFER, BUFFERS, LONGEST_RECORD, MARKER_STACKTRACE, MARKER_TRAILER, RawFrame, SHORTEST_RECORD,
    TRAILER, decode,
};
use nthbyte_rpython::binary::thread_pointer;

/// Number of immediate retries of a thread that cannot begin a walk.
const SPINS: u32 = 2000;
/// Number of retries after that, each after 50 µs or more. A tick retries less often: a lost tick is acceptable, and a
/// fork may wait for the code that the tick has interrupted.
pub const NAPS: u32 = 20_000;
pub const NAPS_OF_A_TICK: u32 = 20;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The number that `_vmprof` uses as the descriptor of its file. No file can have this number, so all data
/// that is written to it arrives here.
pub const DESCRIPTOR: c_int = c_int::MAX;
/// The data that `_vmprof` has written, without stacks: the names of code.
pub static NAMES: MemoryFile = MemoryFile::none();
/// The handler of SIGPROF that `_vmprof` installed; null while it must not be called.
pub static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the program has switched `_vmprof` off: from then on `_vmprof` belongs to the program.
pub static TAKEN_AWAY: AtomicBool = AtomicBool::new(false);
/// The address of `_vmprof`'s buffers; 0 if it is not known.
pub static BUFFERS_AT: AtomicUsize = AtomicUsize::new(0);
/// Whether the next `mmap` may be `_vmprof.enable`'s, which allocates the buffers.
pub static BUFFERS_AWAITED: AtomicBool = AtomicBool::new(false);
/// The thread (its thread pointer) that is taking a record. Only one thread at a time calls the
/// handler, so that no record stays in a buffer for another thread to write.
pub static WALKING: AtomicUsize = AtomicUsize::new(0);
/// Length of the last record in bytes.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A record. Only the thread that holds [`WALKING`] uses it.
#[repr(align(8))]
pub struct Record(pub std::cell::UnsafeCell<[u8; LONGEST_RECORD]>);
// SAFETY: only the thread that holds `WALKING` uses it.
unsafe impl Sync for Record {}
/// The last record.
pub static RECORD_TAKEN: Record = Record(std::cell::UnsafeCell::new([0; LONGEST_RECORD]));

/// The work of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A minor collection.
    Minor,
    /// A step of a major collection.
    Major,
}

/// The thread (its thread pointer) that does each kind of work; 0 if none does.
static WORKING: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Work {
    const ALL: [Self; 2] = [Self::Minor, Self::Major];

    /// Calls `work` and marks the calling thread as doing this kind of work.
    pub fn run(self, work: impl FnOnce()) {
        let thread = &WORKING[self as usize];
        thread.store(thread_pointer(), Ordering::Relaxed);
        work();
        thread.store(0, Ordering::Relaxed);
    }

    /// Whether the calling thread is doing this work.
    #[must_use]
    pub fn is_here(self) -> bool {
        WORKING[self as usize].load(Ordering::Relaxed) == thread_pointer()
    }

    /// The work that the calling thread is doing.
    pub fn here() -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.is_here())
    }

    /// The word for this work in a tick; 0 means no work.
    pub const fn word(self) -> u64 {
        self as u64 + 1
    }

    /// The work for a word in a tick.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.word() == word)
    }
}

/// Replaces the library's `write`: keeps the data that `_vmprof` writes, and writes all other data.
///
/// # Safety
/// As `write(2)`.
pub unsafe extern "C" fn write_hook(fd: c_int, data: *const c_void, length: usize) -> isize {
    if fd != DESCRIPTOR {
        // SAFETY: passed on unchanged.
        return unsafe { libc::write(fd, data, length) };
    }
    // SAFETY: the caller passes `length` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    match bytes.first() {
        Some(&MARKER_STACKTRACE) if (SHORTEST_RECORD + 1..=LONGEST_RECORD).contains(&length) => {
            // A record is dropped if no walk waits for it.
            if WALKING.load(Ordering::Relaxed) == thread_pointer() {
                // SAFETY: this thread holds `WALKING`, so no other thread uses the record; the length
                // was checked.
                unsafe {
                    let place = RECORD_TAKEN.0.get().cast::<u8>();
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, length);
                }
                TAKEN.store(length, Ordering::Relaxed);
            }
        }
        // The last record that `_vmprof` writes when it is switched off. nthbyte switches it off only after
        // [`forbid`].
        Some(&MARKER_TRAILER) if length == TRAILER => {
            if !HANDLER.load(Ordering::Relaxed).is_null() {
                TAKEN_AWAY.store(true, Ordering::Relaxed);
                HANDLER.store(std::ptr::null_mut(), Ordering::Release);
                BUFFERS_AT.store(0, Ordering::Relaxed);
            }
        }
        // `_vmprof` writes one buffer at a time, under a lock of its own. If a name is lost, its code object has no
        // name in the profile.
        _ => _ = NAMES.append(bytes),
    }
    length.cast_signed()
}

/// Replaces the library's `mmap`: records the address of the buffers that `_vmprof.enable`
/// allocates.
///
/// # Safety
/// As `mmap(2)`.
pub unsafe extern "C" fn mmap_hook(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: passed on unchanged.
    let result = unsafe { libc::mmap(address, length, protection, flags, fd, offset) };
    if length == BUFFER * BUFFERS
        && result != libc::MAP_FAILED
        && BUFFERS_AWAITED.load(Ordering::Relaxed)
    {
        BUFFERS_AT.store(result as usize, Ordering::Relaxed);
    }
    result
}

/// Replaces the library's `lseek`. At each sample `_vmprof` rewinds a file of memory totals, even
/// if it has no such file, and the failing system call takes as long as the walk.
///
/// # Safety
/// As `lseek(2)`.
pub unsafe extern "C" fn lseek_hook(fd: c_int, offset: libc::off_t, whence: c_int) -> libc::off_t {
    if fd < 0 {
        // As the system call would.
        set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: passed on unchanged.
    unsafe { libc::lseek(fd, offset, whence) }
}

/// The threads (their thread pointers) that switch `_vmprof` on or off, or fork; 0 in a free place.
static CHANGING: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// Says whether the calling thread switches `_vmprof` on or off, or forks: as long as it does, its `_vmprof` gets no timer.
pub fn changes_here(on: bool) {
    let own = thread_pointer();
    let (from, to) = if on { (0, own) } else { (own, 0) };
    let _ = CHANGING.iter().find(|place| {
        let changed = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    });
}

/// Replaces the library's `setitimer`: `_vmprof` gets no timer. An interval timer would outlive an `exec`, and kill the new
/// program, which has no handler. What the program sets itself is passed on.
///
/// # Safety
/// As `setitimer(2)`.
pub unsafe extern "C" fn setitimer_hook(
    which: c_int,
    new: *const libc::itimerval,
    old: *mut libc::itimerval,
) -> c_int {
    let own = thread_pointer();
    let mut changing = CHANGING.iter().map(|place| place.load(Ordering::Relaxed));
    if which == libc::ITIMER_PROF && changing.any(|thread| thread == own) {
        return 0;
    }
    // SAFETY: passed on unchanged.
    unsafe { libc::setitimer(which as _, new, old) }
}

/// A list that the handler walks instead of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Substitute {
    /// The word where the list of the calling thread begins.
    pub head: *mut usize,
    /// A list that stays valid during the walk.
    pub list: usize,
}

impl Substitute {
    /// Replaces the thread's list and returns the previous one, which must be restored before [`done`]. A tick of the clock
    /// meanwhile finds that this thread walks.
    fn put_in(self) -> Self {
        // SAFETY: the word belongs to the calling thread.
        unsafe {
            let list = self.head.read_volatile();
            self.head.write_volatile(self.list);
            Self { list, ..self }
        }
    }
}

/// What a call of PyPy's handler has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// It cannot be called now.
    Unable,
    /// A thread without Python frames.
    Empty,
    /// A record of this length in `RECORD_TAKEN`. [`done`] must follow.
    Record(usize),
}

/// Calls PyPy's handler, which leaves its record in `RECORD_TAKEN`. Safe in a signal handler.
pub fn walk(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    naps: u32,
    substitute: Option<Substitute>,
) -> Walk {
    if !begin(naps) {
        return Walk::Unable;
    }
    TAKEN.store(0, Ordering::Relaxed);
    let before = substitute.map(Substitute::put_in);
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: this is the handler that `_vmprof` installed. It reads its own thread's stack list and
        // the program counter of the context, and may run at any moment. It stays valid while this
        // thread holds `WALKING`: a call of `forbid` waits for that.
        unsafe { std::mem::transmute::<*mut c_void, Handler>(handler)(signal, info, context) };
    }
    before.map(Substitute::put_in);
    let length = TAKEN.load(Ordering::Relaxed);
    if length < SHORTEST_RECORD {
        done();
        return if handler.is_null() {
            Walk::Unable
        } else {
            Walk::Empty
        };
    }
    Walk::Record(length)
}

/// The arguments for a direct call of the handler: a signal without a sender.
pub struct Signal {
    info: libc::siginfo_t,
    context: libc::ucontext_t,
}

impl Default for Signal {
    fn default() -> Self {
        // SAFETY: zero is a valid value of both structs.
        let mut signal: Self = unsafe { std::mem::zeroed() };
        signal.info.si_signo = libc::SIGPROF;
        signal
    }
}

impl Signal {
    /// Makes the handler walk a stack, and appends its frames, innermost first.
    pub fn raise(&mut self, naps: u32, substitute: Option<Substitute>, frames: &mut Vec<RawFrame>) {
        let info = &raw mut self.info;
        let context = (&raw mut self.context).cast();
        if let Walk::Record(length) = walk(libc::SIGPROF, info, context, naps, substitute) {
            // SAFETY: this thread holds `WALKING` until `done`.
            let record = unsafe { &*RECORD_TAKEN.0.get() };
            frames.extend(decode(&record[..length]));
            done();
        }
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Signal")
    }
}

/// The frames of the calling thread, innermost first, in any thread at any moment. None if PyPy does not know the thread,
/// or if the handler cannot be called now.
pub fn walk_here() -> Vec<RawFrame> {
    let mut frames = Vec::new();
    if !HANDLER.load(Ordering::Relaxed).is_null()
        && WALKING.load(Ordering::Relaxed) != thread_pointer()
    {
        Signal::default().raise(NAPS_OF_A_TICK, None, &mut frames);
    }
    frames
}

/// Takes [`WALKING`] and returns whether that was possible. A walk takes a microsecond: another thread must wait only
/// if the walking thread has lost its processor.
fn begin(naps: u32) -> bool {
    let own = thread_pointer();
    let nap = libc::timespec {
        tv_sec: 0,
        tv_nsec: 50_000,
    };
    for attempt in 0..SPINS + naps {
        let free = WALKING.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return true;
        }
        if attempt < SPINS {
            std::hint::spin_loop();
        } else {
            // By number: the C library's function would end a thread that the program has cancelled.
            // SAFETY: the struct is valid; the call is safe in a signal handler.
            unsafe { libc::syscall(libc::SYS_nanosleep, &raw const nap, 0_usize) };
        }
    }
    false
}

/// Releases [`WALKING`].
pub fn done() {
    WALKING.store(0, Ordering::Release);
}

/// Before a fork: prevents new walks, and waits for a running one. [`resume`] must follow.
pub fn pause() {
    begin(NAPS);
}

/// Ends [`pause`].
pub fn resume() {
    let own = thread_pointer();
    let _ = WALKING.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
}

/// Prevents further calls of the handler. When this returns, no thread is in the handler.
pub fn forbid() {
    HANDLER.store(std::ptr::null_mut(), Ordering::Release);
    pause();
    resume();
}

#[cfg(test)]
mod tests {
    use super::super::vmprof;
    use super::*;

    /// Writes a record, as `_vmprof` does.
    unsafe extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        let mut record = [7u8; 33];
        record[0] = MARKER_STACKTRACE;
        // SAFETY: the record has the given length.
        unsafe { write_hook(DESCRIPTOR, record.as_ptr().cast(), record.len()) };
    }

    /// One test, because the state is shared by the whole process.
    #[test]
    fn a_walk_waits_its_turn_and_ends_with_vmprof() {
        let null = std::ptr::null_mut();
        let walked = || {
            let walk = walk(libc::SIGPROF, null, null.cast(), NAPS, None);
            if let Walk::Record(_) = walk {
                assert_eq!(WALKING.load(Ordering::Relaxed), thread_pointer());
                done();
            }
            walk
        };
        assert_eq!(walked(), Walk::Unable);
        HANDLER.store(handler as *mut c_void, Ordering::Release);
        assert_eq!(walked(), Walk::Record(33));

        // Another thread walks and loses its processor.
        let (begun, wait) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            pause();
            begun.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            resume();
        });
        wait.recv().unwrap();
        assert_eq!(walked(), Walk::Record(33));
        other.join().unwrap();

        // A fork waits for the walk of another thread, and keeps others from walking until it is over.
        let (begun, wait) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            pause();
            begun.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let is_still_ours = WALKING.load(Ordering::Relaxed) == thread_pointer();
            resume();
            is_still_ours
        });
        wait.recv().unwrap();
        vmprof::before_fork();
        assert_eq!(WALKING.load(Ordering::Relaxed), thread_pointer());
        assert!(other.join().unwrap());
        vmprof::forked_parent();
        assert_eq!(WALKING.load(Ordering::Relaxed), 0);
        assert_eq!(walked(), Walk::Record(33));

        // A record that no walk waits for is dropped; all other data is kept, in order.
        NAMES.make().unwrap();
        // SAFETY: the handler has no precondition.
        unsafe { handler(0, null, null.cast()) };
        // SAFETY: the bytes are there.
        unsafe { write_hook(DESCRIPTOR, [2u8; 20].as_ptr().cast(), 20) };
        assert_eq!(NAMES.length(), 20);

        // The program switches `_vmprof` off.
        let trailer = [MARKER_TRAILER; TRAILER];
        // SAFETY: the bytes are there.
        unsafe { write_hook(DESCRIPTOR, trailer.as_ptr().cast(), TRAILER) };
        assert!(TAKEN_AWAY.load(Ordering::Relaxed));
        assert_eq!(walked(), Walk::Unable);
        NAMES.close();
    }
}
