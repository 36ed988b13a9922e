//! PyPy's `_vmprof` from both sides: its handler of SIGPROF is called here, and its calls of `write`, `mmap` and
//! `lseek` lead here. Everything is safe in a signal handler; see [`super::vmprof`].

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use nthbyte_session::process::MemoryFile;
use nthbyte_session::ticks::TICKS;

use super::record::{
    BUFFER, BUFFERS, LONGEST_RECORD, MARKER_STACKTRACE, MARKER_TRAILER, SHORTEST_RECORD, TRAILER,
};
use crate::binary::thread_pointer;

/// How often a thread that cannot walk tries again at once.
const SPINS: u32 = 2000;
/// How often it tries again after that, each time after 50 µs or more. A tick tries less often: it may be lost, and the
/// code that it has interrupted may be such that a fork waits for.
pub const NAPS: u32 = 20_000;
const NAPS_OF_A_TICK: u32 = 20;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What `_vmprof` takes for the descriptor of its file. No file can have this number, whatever the program
/// closes and opens: all that is written to it comes here.
pub const DESCRIPTOR: c_int = c_int::MAX;
/// What `_vmprof` has written there, but for stacks: the names of code.
pub static NAMES: MemoryFile = MemoryFile::none();
/// The handler of SIGPROF that `_vmprof` installed; null while it must not be called.
pub static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the program has switched `_vmprof` off: it is the program's from then on.
pub static TAKEN_AWAY: AtomicBool = AtomicBool::new(false);
/// Where `_vmprof` has its buffers; 0 while they are not known.
pub static BUFFERS_AT: AtomicUsize = AtomicUsize::new(0);
/// Whether `_vmprof.enable` is to come, which gets the buffers.
pub static BUFFERS_AWAITED: AtomicBool = AtomicBool::new(false);
/// The thread (its thread pointer) whose record is being taken. Only one at a time calls the handler,
/// so that no record is left behind in a buffer for another thread to write.
pub static WALKING: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the record that was taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A record, for whoever holds [`WALKING`].
#[repr(align(8))]
pub struct Record(pub std::cell::UnsafeCell<[u8; LONGEST_RECORD]>);
// SAFETY: used by the thread that holds `WALKING` only.
unsafe impl Sync for Record {}
/// The record that was taken last.
pub static RECORD_TAKEN: Record = Record(std::cell::UnsafeCell::new([0; LONGEST_RECORD]));

/// What the collector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A minor collection.
    Minor,
    /// A step of a major one.
    Major,
}

/// The thread (its thread pointer) in which each kind of work is under way; 0 if there is none.
static WORKING: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Work {
    const ALL: [Self; 2] = [Self::Minor, Self::Major];

    /// Does it, in the calling thread, by calling `work`.
    pub fn run(self, work: impl FnOnce()) {
        let thread = &WORKING[self as usize];
        thread.store(thread_pointer(), Ordering::Relaxed);
        work();
        thread.store(0, Ordering::Relaxed);
    }

    /// Whether it is under way in the calling thread.
    #[must_use]
    pub fn is_here(self) -> bool {
        WORKING[self as usize].load(Ordering::Relaxed) == thread_pointer()
    }

    /// What is under way in the calling thread.
    fn here() -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.is_here())
    }

    /// The word for it in a tick, in which 0 is none.
    const fn word(self) -> u64 {
        self as u64 + 1
    }

    /// What a word in a tick says.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.word() == word)
    }
}

/// Replaces `write` for the library: what `_vmprof` writes is kept, all else is written.
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
            // A record that no walk waits for is dropped.
            if WALKING.load(Ordering::Relaxed) == thread_pointer() {
                // SAFETY: this thread holds `WALKING`, so the place is its own; the length was checked.
                unsafe {
                    let place = RECORD_TAKEN.0.get().cast::<u8>();
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, length);
                }
                TAKEN.store(length, Ordering::Relaxed);
            }
        }
        // The last that `_vmprof` writes, when it is switched off. nthbyte does that only after [`forbid`].
        Some(&MARKER_TRAILER) if length == TRAILER => {
            if !HANDLER.load(Ordering::Relaxed).is_null() {
                TAKEN_AWAY.store(true, Ordering::Relaxed);
                HANDLER.store(std::ptr::null_mut(), Ordering::Release);
                BUFFERS_AT.store(0, Ordering::Relaxed);
            }
        }
        // `_vmprof` writes one buffer at a time, under a lock of its own. A code object whose name is lost has none in
        // the profile.
        _ => _ = NAMES.append(bytes),
    }
    length.cast_signed()
}

/// Replaces `mmap` for the library: notes where `_vmprof.enable` gets its buffers.
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

/// Replaces `lseek` for the library: `_vmprof` rewinds a file of memory totals at each sample, even
/// where it has none, and the system call that fails takes as long as the walk.
///
/// # Safety
/// As `lseek(2)`.
pub unsafe extern "C" fn lseek_hook(fd: c_int, offset: libc::off_t, whence: c_int) -> libc::off_t {
    if fd < 0 {
        // SAFETY: errno is the thread's own; this is what the call would have done.
        unsafe { *libc::__errno_location() = libc::EBADF };
        return -1;
    }
    // SAFETY: passed on unchanged.
    unsafe { libc::lseek(fd, offset, whence) }
}

/// Takes the place of the handler of SIGPROF, so that each tick is either recorded or counted.
pub unsafe extern "C" fn tick(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if !TICKS.are_wanted() {
        return;
    }
    // SAFETY: errno is the thread's own; it is put back below, as the interrupted code expects.
    let errno = unsafe { *libc::__errno_location() };
    if WALKING.load(Ordering::Relaxed) == thread_pointer() {
        TICKS.miss();
    } else if let Some(length) = walk(signal, info, context, NAPS_OF_A_TICK, None) {
        record_tick(length);
        done();
    } else {
        TICKS.lose();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// What the handler shall walk instead of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Substitute {
    /// Where the list of the calling thread begins.
    pub head: *mut usize,
    /// A list that is valid meanwhile.
    pub list: usize,
}

impl Substitute {
    /// Puts the list in; what was there is to be put in again before [`done`]. A tick of the clock that comes
    /// meanwhile finds that this thread walks, and is counted for that walk's stack.
    fn put_in(self) -> Self {
        // SAFETY: the word belongs to the calling thread.
        unsafe {
            let list = self.head.read_volatile();
            self.head.write_volatile(self.list);
            Self { list, ..self }
        }
    }
}

/// Calls PyPy's handler and leaves its record in `RECORD_TAKEN`: its length, or `None` without a
/// record. After `Some`, [`done`] must follow. Safe in a signal handler.
pub fn walk(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    naps: u32,
    substitute: Option<Substitute>,
) -> Option<usize> {
    if !begin(naps) {
        return None;
    }
    TAKEN.store(0, Ordering::Relaxed);
    let before = substitute.map(Substitute::put_in);
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: this is the handler that `_vmprof` installed; it reads its own thread's stack list and
        // the program counter of the context, and is made to run at any moment. It stays in force while
        // this thread holds `WALKING`: whoever has it forbidden waits for that.
        unsafe { std::mem::transmute::<*mut c_void, Handler>(handler)(signal, info, context) };
    }
    before.map(Substitute::put_in);
    let length = TAKEN.load(Ordering::Relaxed);
    if length < SHORTEST_RECORD {
        done();
        return None;
    }
    Some(length)
}

/// Takes [`WALKING`]; whether that was possible. A walk takes a microsecond: only if the thread that walks has lost its
/// processor does another have to wait.
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
            // SAFETY: the struct is valid; the call is safe in a signal handler.
            unsafe { libc::nanosleep(&raw const nap, std::ptr::null_mut()) };
        }
    }
    false
}

/// Gives [`WALKING`] back.
pub fn done() {
    WALKING.store(0, Ordering::Release);
}

/// Before a fork: keeps walks from beginning, and waits for one that is under way. [`resume`] must follow.
pub fn pause() {
    begin(NAPS);
}

/// Ends [`pause`].
pub fn resume() {
    let own = thread_pointer();
    let _ = WALKING.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
}

/// Keeps the handler from being called any more. When this returns, no thread is in it.
pub fn forbid() {
    HANDLER.store(std::ptr::null_mut(), Ordering::Release);
    pause();
    resume();
}

/// Stores the record that was just taken as a tick. Safe in a signal handler.
fn record_tick(length: usize) {
    // SAFETY: this thread holds `WALKING`.
    let record = unsafe { &*RECORD_TAKEN.0.get() };
    TICKS.store(Work::here().map_or(0, Work::word), &record[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a record, as `_vmprof` does.
    unsafe extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        let mut record = [7u8; 33];
        record[0] = MARKER_STACKTRACE;
        // SAFETY: the record has the length that is given.
        unsafe { write_hook(DESCRIPTOR, record.as_ptr().cast(), record.len()) };
    }

    /// One test, for there is one state in a process.
    #[test]
    fn a_walk_waits_its_turn_and_ends_with_vmprof() {
        let null = std::ptr::null_mut();
        let walked = || {
            walk(libc::SIGPROF, null, null.cast(), NAPS, None).inspect(|_| {
                assert_eq!(WALKING.load(Ordering::Relaxed), thread_pointer());
                done();
            })
        };
        assert_eq!(walked(), None);
        HANDLER.store(handler as *mut c_void, Ordering::Release);
        assert_eq!(walked(), Some(33));

        // Another thread walks, and loses its processor.
        let (begun, wait) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            pause();
            begun.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            resume();
        });
        wait.recv().unwrap();
        assert_eq!(walked(), Some(33));
        other.join().unwrap();

        // A record that nobody waits for is dropped; all else is kept, in order.
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
        assert_eq!(walked(), None);
        NAMES.close();
    }
}
