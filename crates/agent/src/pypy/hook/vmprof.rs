//! Stacks, through PyPy's own profiler.
//!
//! `_vmprof.enable(fd, …)` installs a handler for SIGPROF that walks the stack of the thread it runs in
//! and writes one record to `fd` before it returns (`rvmprof/src/shared/vmprof_unix.c`). The handler is
//! an ordinary function: here it is called directly. And it writes through an import slot of the
//! library: that slot is redirected, so that the record is taken where it lies and no system call is
//! made.
//!
//! ```text
//! record:  0x01, count: i64, depth: i64, depth × word     (innermost frame first; two words a frame)
//! frame:   1 (interpreted) | 3 (compiled) | 6 (machine code of the frames that follow), value
//! name:    0x02, unique id: i64, length: i64, "py:function:line:file"
//! ```
//!
//! Names are written to `fd`, a memory file, a buffer at a time. What is still in a buffer is read
//! there: `prepare_concurrent_bufs` gets all twenty from one `mmap`, which is watched as well.

use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use super::handler::{
    BUFFERS_AT, DESCRIPTOR, HANDLER, LOST_TICKS, MISSED_TICKS, RECORD, RECORD_TAKEN, TICK_HEADER,
    TICKING, TICKS_FILE, TICKS_WRITTEN, WALKING, done, tick, walk,
};
use super::names::{CodeName, Parsed, names_in_buffers, parse};

/// Kinds of frames in a record (`vmprof_stack.h`).
const CODE_TAG: usize = 1;
const JITTED_TAG: usize = 3;

/// One frame of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Compiled by the just-in-time compiler.
    pub compiled: bool,
    /// PyPy's number of the code object.
    pub unique_id: u64,
}

/// A time sample as it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_nanos: u64,
    /// The operating system's number of the thread.
    pub thread: u64,
    /// The collector was at work.
    pub collecting: bool,
}

/// `_vmprof`, switched on.
#[derive(Debug)]
pub struct Vmprof {
    /// A descriptor of our own for the file that `_vmprof` writes to.
    file: c_int,
    read: i64,
    rest: Vec<u8>,
    names: FxHashMap<u64, CodeName>,
    ticks_read: i64,
    broken: bool,
    signal: Box<Signal>,
}

/// What the handler is called with: a signal that came from nowhere.
struct Signal {
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

impl std::fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Signal")
    }
}

impl Vmprof {
    /// Takes over from a `_vmprof` that was just enabled with the descriptor `fd`.
    ///
    /// # Errors
    /// One line, if its handler is not there.
    pub fn attach(fd: c_int, ticking: bool) -> Result<Self, String> {
        TICKING.store(ticking, Ordering::Relaxed);
        let mut vmprof = Self {
            file: -1,
            read: 0,
            rest: Vec::new(),
            names: FxHashMap::default(),
            ticks_read: 0,
            broken: false,
            signal: Box::default(),
        };
        vmprof.open(fd)?;
        take_over()?;
        ATFORK.call_once(|| {
            // SAFETY: both functions may be called at any fork. `_vmprof` has registered its own
            // before, so that the timer that it starts again in the parent is stopped after it.
            unsafe { libc::pthread_atfork(None, Some(forked_parent), Some(forked_child)) };
        });
        Ok(vmprof)
    }

    /// In the child of a fork, `_vmprof` has closed its file: reads what names there are and makes
    /// another file, for it to be enabled with anew.
    ///
    /// # Errors
    /// One line, if there is no descriptor left.
    pub fn reopen(&mut self) -> Result<c_int, String> {
        self.read_names();
        self.names
            .extend(names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed)));
        BUFFERS_AT.store(0, Ordering::Relaxed);
        // SAFETY: the name is a terminated string.
        let fd = unsafe { libc::memfd_create(c"nthbyte-vmprof".as_ptr(), libc::MFD_CLOEXEC) };
        self.close();
        self.open(fd)?;
        Ok(fd)
    }

    fn open(&mut self, fd: c_int) -> Result<(), String> {
        // SAFETY: duplicates a descriptor; the result is checked.
        self.file = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: the name is a terminated string.
        let ticks = unsafe { libc::memfd_create(c"nthbyte-ticks".as_ptr(), libc::MFD_CLOEXEC) };
        TICKS_FILE.store(ticks, Ordering::Relaxed);
        TICKS_WRITTEN.store(0, Ordering::Relaxed);
        (self.read, self.ticks_read, self.broken) = (0, 0, false);
        self.rest.clear();
        if self.file < 0 || ticks < 0 {
            let error = std::io::Error::last_os_error();
            self.close();
            return Err(format!("no file descriptor left: {error}"));
        }
        DESCRIPTOR.store(fd, Ordering::Relaxed);
        Ok(())
    }

    fn close(&mut self) {
        for file in [
            std::mem::replace(&mut self.file, -1),
            TICKS_FILE.swap(-1, Ordering::Relaxed),
        ] {
            if file >= 0 {
                // SAFETY: both descriptors are ours.
                unsafe { libc::close(file) };
            }
        }
    }

    /// Lets go: after this the handler is not called any more.
    pub fn detach(&mut self) {
        TICKING.store(false, Ordering::Relaxed);
        HANDLER.store(std::ptr::null_mut(), Ordering::Release);
        DESCRIPTOR.store(-1, Ordering::Relaxed);
        BUFFERS_AT.store(0, Ordering::Relaxed);
        self.close();
    }

    /// Walks the stack of the calling thread; `frames` becomes its frames, innermost first.
    pub fn stack(&mut self, frames: &mut Vec<RawFrame>) {
        frames.clear();
        let info = &raw mut self.signal.info;
        let context = (&raw mut self.signal.context).cast();
        if let Some(length) = walk(libc::SIGPROF, info, context) {
            // SAFETY: this thread holds `WALKING` until `done`.
            let record = unsafe { &*RECORD_TAKEN.0.get() };
            decode(&record[TICK_HEADER..TICK_HEADER + length], frames);
            done();
        }
    }

    /// Ticks that fell into one of our own walks since the last call: each is a time sample of the
    /// stack that was walked.
    #[must_use]
    pub fn missed_ticks(&self) -> u32 {
        MISSED_TICKS.swap(0, Ordering::Relaxed)
    }

    /// Ticks without a stack since the last call.
    #[must_use]
    pub fn lost_ticks(&self) -> u64 {
        LOST_TICKS.swap(0, Ordering::Relaxed)
    }

    /// The next time sample that was not yet taken.
    pub fn next_tick(&mut self, frames: &mut Vec<RawFrame>) -> Option<Tick> {
        let written = TICKS_WRITTEN.load(Ordering::Acquire);
        if self.ticks_read + TICK_HEADER as i64 > written {
            return None;
        }
        let file = TICKS_FILE.load(Ordering::Relaxed);
        let mut head = [0u8; TICK_HEADER];
        read_exactly(file, &mut head, self.ticks_read)?;
        let mut words = head.chunks_exact(8).map(word);
        let mut next = || words.next().unwrap_or(0);
        let tick = Tick {
            monotonic_nanos: next(),
            thread: next(),
            collecting: next() != 0,
        };
        let length = (next() as usize).min(RECORD);
        let mut record = [0u8; RECORD];
        read_exactly(
            file,
            &mut record[..length],
            self.ticks_read + TICK_HEADER as i64,
        )?;
        frames.clear();
        decode(&record[..length], frames);
        self.ticks_read += (TICK_HEADER + length) as i64;
        Some(tick)
    }

    /// The name of a code object, if it has been written anywhere.
    pub fn name(&mut self, unique_id: u64) -> Option<&CodeName> {
        if !self.names.contains_key(&unique_id) {
            self.read_names();
            if !self.names.contains_key(&unique_id) {
                let mut names = names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed));
                names.retain(|&(id, _)| id == unique_id);
                self.names.extend(names);
            }
        }
        self.names.get(&unique_id)
    }

    /// Reads what was appended to the file.
    fn read_names(&mut self) {
        let mut block = vec![0u8; 1 << 16];
        while !self.broken {
            // SAFETY: the buffer is ours and has the length given.
            let got = unsafe {
                libc::pread(self.file, block.as_mut_ptr().cast(), block.len(), self.read)
            };
            let Some(bytes) = usize::try_from(got).ok().and_then(|got| block.get(..got)) else {
                return;
            };
            if bytes.is_empty() {
                return;
            }
            self.read += got as i64;
            self.rest.extend_from_slice(bytes);
            let mut used = 0;
            loop {
                match parse(&self.rest[used..]) {
                    Parsed::Name(length, unique_id, name) => {
                        used += length;
                        self.names.insert(unique_id, name);
                    }
                    Parsed::Other(length) => used += length,
                    Parsed::More => break,
                    Parsed::Broken => {
                        self.broken = true;
                        break;
                    }
                }
            }
            self.rest.drain(..used);
        }
    }
}

static ATFORK: Once = Once::new();

/// Puts [`tick`] in the place of the handler that `_vmprof` has just installed, and stops its timer if
/// no time samples are wanted.
///
/// # Errors
/// One line, if it is not there.
pub fn take_over() -> Result<(), String> {
    // SAFETY: zero is a valid value of the struct, which the call fills in.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the current action only.
    let asked = unsafe { libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut action) };
    let handler = action.sa_sigaction;
    if asked != 0 || handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return Err("PyPy's _vmprof did not install its handler of SIGPROF".to_owned());
    }
    HANDLER.store(handler as *mut c_void, Ordering::Release);
    action.sa_sigaction = tick as *const () as usize;
    // SAFETY: `tick` is a handler of the type that SA_SIGINFO asks for, and is safe in a signal.
    unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) };
    stop_unwanted_timer();
    Ok(())
}

fn stop_unwanted_timer() {
    if !TICKING.load(Ordering::Relaxed) {
        // SAFETY: a zero timer is valid: it stops the timer that `_vmprof` always starts.
        unsafe {
            let off: libc::itimerval = std::mem::zeroed();
            libc::setitimer(libc::ITIMER_PROF, &raw const off, std::ptr::null_mut());
        }
    }
}

extern "C" fn forked_parent() {
    if !HANDLER.load(Ordering::Relaxed).is_null() {
        stop_unwanted_timer();
    }
}

/// The handler must not be called without a file: it would abort the process.
extern "C" fn forked_child() {
    HANDLER.store(std::ptr::null_mut(), Ordering::Release);
    WALKING.store(0, Ordering::Relaxed);
}

/// The Python frames of a record.
fn decode(record: &[u8], frames: &mut Vec<RawFrame>) {
    let Some(depth) = record.get(9..17).map(word) else {
        return;
    };
    for pair in record[17..].chunks_exact(16).take(depth as usize / 2) {
        let (kind, unique_id) = (word(&pair[..8]) as usize, word(&pair[8..]));
        if kind == CODE_TAG || kind == JITTED_TAG {
            frames.push(RawFrame {
                compiled: kind == JITTED_TAG,
                unique_id,
            });
        }
    }
}

/// Eight bytes as a number.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

fn read_exactly(file: c_int, into: &mut [u8], at: i64) -> Option<()> {
    // SAFETY: the buffer is given with its length.
    let got = unsafe { libc::pread(file, into.as_mut_ptr().cast(), into.len(), at) };
    (got == into.len().cast_signed()).then_some(())
}
