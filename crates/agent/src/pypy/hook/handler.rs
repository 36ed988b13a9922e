//! What PyPy's profiler is surrounded with: its handler of SIGPROF is called from here, and what it
//! writes is taken here. Everything is safe in a signal handler; see [`super::vmprof`].

use crate::session::monotonic_nanos;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use super::names::MARKER_STACKTRACE;

/// `struct profbuf_s`: two 32-bit numbers and the data.
pub const BUFFER: usize = 8192;
/// How many there are.
pub const BUFFERS: usize = 20;
/// The longest record.
pub const RECORD: usize = BUFFER - 8;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The descriptor that `_vmprof` writes to; -1 while it is off.
pub static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The handler of SIGPROF that `_vmprof` installed; null while it must not be called.
pub static HANDLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Where `_vmprof` has its buffers; 0 while they are not known.
pub static BUFFERS_AT: AtomicUsize = AtomicUsize::new(0);
/// The thread (its thread pointer) whose record is being taken. Only one at a time calls the handler,
/// so that no record is left behind in a buffer for another thread to write.
pub static WALKING: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the record that was taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Ticks of the clock that fell into a walk of the same thread.
pub static MISSED_TICKS: AtomicU32 = AtomicU32::new(0);
/// Ticks for which no stack could be taken.
pub static LOST_TICKS: AtomicU64 = AtomicU64::new(0);
/// The memory file that ticks are appended to.
pub static TICKS_FILE: AtomicI32 = AtomicI32::new(-1);
/// Its length.
pub static TICKS_WRITTEN: AtomicI64 = AtomicI64::new(0);
/// Whether time samples are wanted.
pub static TICKING: AtomicBool = AtomicBool::new(false);

/// A record, for whoever holds [`WALKING`].
#[repr(align(8))]
pub struct Record(pub std::cell::UnsafeCell<[u8; RECORD + TICK_HEADER]>);
// SAFETY: used by the thread that holds `WALKING` only.
unsafe impl Sync for Record {}
/// The record that was taken last, after room for a tick's header.
pub static RECORD_TAKEN: Record = Record(std::cell::UnsafeCell::new([0; RECORD + TICK_HEADER]));

/// What precedes a record in the file of ticks: time, thread, whether in the collector, length.
pub const TICK_HEADER: usize = 32;

/// The thread (its thread pointer) in which a minor collection is under way; 0 if there is none.
pub static COLLECTING: AtomicUsize = AtomicUsize::new(0);

/// The address that identifies the calling thread, at the cost of one instruction.
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: on x86-64 Linux the first word of the thread's control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, pure, readonly)) };
    pointer
}

/// Replaces `write` for the library: records of stacks are kept, all else is written.
///
/// # Safety
/// As `write(2)`.
pub unsafe extern "C" fn write_hook(fd: c_int, data: *const c_void, length: usize) -> isize {
    if fd >= 0 && fd == DESCRIPTOR.load(Ordering::Relaxed) && length > 17 && length <= RECORD {
        // SAFETY: the caller passes `length` readable bytes.
        let marker = unsafe { *data.cast::<u8>() };
        if marker == MARKER_STACKTRACE && WALKING.load(Ordering::Relaxed) == thread_pointer() {
            // SAFETY: this thread holds `WALKING`, so the buffer is its own; the length was checked.
            unsafe {
                let place = RECORD_TAKEN.0.get().cast::<u8>().add(TICK_HEADER);
                std::ptr::copy_nonoverlapping(data.cast(), place, length);
            }
            TAKEN.store(length, Ordering::Relaxed);
            return length.cast_signed();
        }
    }
    // SAFETY: passed on unchanged.
    unsafe { libc::write(fd, data, length) }
}

/// Replaces `mmap` for the library while `_vmprof.enable` runs.
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
    if length == BUFFER * BUFFERS && result != libc::MAP_FAILED {
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
    if !TICKING.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: errno is the thread's own; it is put back below, as the interrupted code expects.
    let errno = unsafe { *libc::__errno_location() };
    if WALKING.load(Ordering::Relaxed) == thread_pointer() {
        MISSED_TICKS.fetch_add(1, Ordering::Relaxed);
    } else if let Some(length) = walk(signal, info, context) {
        record_tick(length);
        done();
    } else {
        LOST_TICKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Calls PyPy's handler and leaves its record in `RECORD_TAKEN`: its length, or `None` without a
/// record. After `Some`, [`done`] must follow. Safe in a signal handler.
pub fn walk(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> Option<usize> {
    let handler = HANDLER.load(Ordering::Acquire);
    if handler.is_null() {
        return None;
    }
    let own = thread_pointer();
    let mut patience = 20_000;
    while WALKING
        .compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        patience -= 1;
        if patience == 0 {
            return None;
        }
        std::hint::spin_loop();
    }
    TAKEN.store(0, Ordering::Relaxed);
    // SAFETY: this is the handler that `_vmprof` installed; it reads its own thread's stack list and
    // the program counter of the context, and is made to run at any moment.
    unsafe { std::mem::transmute::<*mut c_void, Handler>(handler)(signal, info, context) };
    let length = TAKEN.load(Ordering::Relaxed);
    if length < 17 {
        done();
        return None;
    }
    Some(length)
}

/// Lets the next thread walk.
pub fn done() {
    WALKING.store(0, Ordering::Release);
}

/// Appends the record that was just taken to the file of ticks. Safe in a signal handler.
fn record_tick(length: usize) {
    // SAFETY: this thread holds `WALKING`.
    let record = unsafe { &mut *RECORD_TAKEN.0.get() };
    // SAFETY: gettid has no precondition and is safe in a signal handler.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let head = [
        monotonic_nanos(),
        thread.cast_unsigned(),
        u64::from(COLLECTING.load(Ordering::Relaxed) == thread_pointer()),
        length as u64,
    ];
    for (place, word) in record.chunks_exact_mut(8).zip(head) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let whole = TICK_HEADER + length;
    let at = TICKS_WRITTEN.load(Ordering::Relaxed);
    // SAFETY: writes initialised bytes of the record to the agent's own memory file.
    let written = unsafe {
        libc::pwrite(
            TICKS_FILE.load(Ordering::Relaxed),
            record.as_ptr().cast(),
            whole,
            at,
        )
    };
    if written == whole.cast_signed() {
        TICKS_WRITTEN.store(at + written as i64, Ordering::Release);
    } else {
        LOST_TICKS.fetch_add(1, Ordering::Relaxed);
    }
}
