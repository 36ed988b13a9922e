//! Time samples: from the signal handler of a timer to the file.
//!
//! A signal handler can neither intern a stack nor wait long for a lock. It stores each tick in a file in memory: the
//! time, the thread, a word and a stack as bytes; the host defines the form of the last two. A part of the process's
//! memory may be copied beside it: the stack of native code. A later recording, in any thread, turns ticks into
//! [`CpuSample`]s: [`Recording::ticks`].
//!
//! The host installs the handler and the timers ([`crate::timers`]). The handler calls one of three functions for each tick:
//! [`store_samples`](Ticks::store_samples), [`store_walked`](Ticks::store_walked), which has room for the walk itself, or
//! [`lose_several`](Ticks::lose_several). A tick that has interrupted nthbyte's own code is stored without a stack:
//! [`TickSamples::inside`].
//!
//! Forks: no handler stores a tick while the process forks. The child stores no ticks until the host calls
//! [`begin`](Ticks::begin) again, and reads none, because the file belongs to the parent.

use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nthbyte_host::clock::monotonic_nanos;
use nthbyte_host::lock::Lock;
use nthbyte_host::process::MemoryFile;
use nthbyte_host::sync::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, constant};
use nthbyte_profile::event::{CpuSample, FrameKind, LabelSetId, LostKind, NodeId, SourceId};

use crate::recording::Recording;

/// The largest size of a stack in bytes. A tick with a larger one is lost.
pub const LONGEST_STACK: usize = 16 << 10;
/// The largest part of the process's memory that is copied, in bytes.
pub const LONGEST_MEMORY: usize = 64 << 10;
/// Bytes before each stack in the file: time, thread, word, length of the stack, length of the copied memory.
pub(crate) const HEADER: usize = 40;
/// The largest size of all ticks that are not recorded yet. More are lost: the program's memory is limited.
pub(crate) const LARGEST_BACKLOG: i64 = 64 << 20;
/// With a larger backlog, ticks have no copies of memory: rather these are missing than ticks.
pub(crate) const LARGEST_WITH_MEMORY: i64 = LARGEST_BACKLOG / 2;
/// The text of the only frame of a tick that has interrupted nthbyte.
const INSIDE_NOTE: &str = "(in nthbyte)";
/// How many times [`Ticks::end`] waits for a handler, some milliseconds each.
const WAITS: u32 = 500;
/// Memory of read ticks, in bytes, that is kept before it is freed.
const FORGET_AFTER: i64 = 1 << 20;

constant! {
    /// The ticks of this process.
    pub static TICKS: Ticks = Ticks::new();
}

/// Ticks that are not recorded yet.
pub struct Ticks {
    are_wanted: AtomicBool,
    /// Whether there is no file to store ticks in.
    are_paused: AtomicBool,
    /// Held by the handler that stores a tick.
    pub(crate) lock: Lock,
    pub(crate) file: MemoryFile,
    pub(crate) lost: AtomicU64,
    /// The next offset to read. Used by the current recording only.
    pub(crate) read: AtomicI64,
    forgotten: AtomicI64,
    /// Unread ticks before this offset cannot be trusted.
    distrusted: AtomicI64,
    /// Where a handler puts a stack before it is stored. Only the thread that holds the lock uses it.
    walked: Room,
    /// Where a tick is read to. Used by the current recording only.
    buffer: Buffer,
}

/// See [`Ticks::walked`].
struct Room(UnsafeCell<[u8; LONGEST_STACK]>);
// SAFETY: only the thread that holds the lock uses it.
unsafe impl Sync for Room {}

/// See [`Ticks::buffer`].
struct Buffer(UnsafeCell<Vec<u8>>);
// SAFETY: only the thread with the current recording uses it.
unsafe impl Sync for Buffer {}

/// What a walk has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// See [`Tick::word`].
    pub word: u64,
    /// The length of the stack in bytes.
    pub length: usize,
    /// The part of the process's memory that is copied, [`LONGEST_MEMORY`] at most. It need not be there.
    pub memory: Range<usize>,
}

/// The samples that a tick stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickSamples {
    /// The stack.
    pub stack: NodeId,
    /// The labels of the thread's work.
    pub labels: LabelSetId,
    /// The number of samples: more than one if the timer expired more often than the signal arrived.
    pub samples: u32,
}

impl TickSamples {
    /// A tick that the host has kept: see [`Recording::keep`].
    pub const KEPT: Self = Self {
        samples: 0,
        ..Self::of(NodeId::ROOT)
    };

    /// One sample of a tick that has interrupted nthbyte's own code, whose stack was not walked. `None` if there is no room.
    pub fn inside(recording: &mut Recording<'_>) -> Option<Self> {
        let stack = recording.named_node(NodeId::ROOT, INSIDE_NOTE, FrameKind::Note)?;
        Some(Self::of(stack))
    }

    /// One sample of a stack, without labels.
    #[must_use]
    pub const fn of(stack: NodeId) -> Self {
        Self {
            stack,
            labels: LabelSetId::NONE,
            samples: 1,
        }
    }
}

/// The data of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick<'a> {
    /// The time in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_nanos: u64,
    /// The operating system's number of the thread.
    pub thread: u64,
    /// A word of the host's: the state of the collector, for example.
    pub word: u64,
    /// The stack, in the host's form.
    pub stack: &'a [u8],
    /// The memory that was to be copied, up to the first byte that could not be read.
    pub memory: &'a [u8],
}

impl Ticks {
    constant! {
        pub(crate) const fn new() -> Self {
            Self {
                are_wanted: AtomicBool::new(false),
                are_paused: AtomicBool::new(true),
                lock: Lock::new(AtomicUsize::new(0)),
                file: MemoryFile::none(),
                lost: AtomicU64::new(0),
                read: AtomicI64::new(0),
                forgotten: AtomicI64::new(0),
                distrusted: AtomicI64::new(0),
                walked: Room(UnsafeCell::new([0; LONGEST_STACK])),
                buffer: Buffer(UnsafeCell::new(Vec::new())),
            }
        }
    }

    /// Begins to store ticks, if `are_wanted` is true. Called for a session, and again in the child of a fork.
    ///
    /// # Errors
    /// There is no free descriptor, or no memory.
    pub fn begin(&self, are_wanted: bool) -> io::Result<()> {
        self.end();
        if are_wanted {
            self.file.make()?;
            self.are_paused.store(false, Relaxed);
            self.are_wanted.store(true, Release);
        }
        Ok(())
    }

    /// Stops storing ticks, and discards ticks that are not recorded. Waits for a handler that stores one.
    pub fn end(&self) {
        self.are_wanted.store(false, Relaxed);
        self.are_paused.store(true, Relaxed);
        // A handler takes microseconds, unless its thread has lost its processor.
        let is_ours = (0..WAITS).any(|_| self.lock.acquire());
        self.file.close();
        for offset in [&self.read, &self.forgotten, &self.distrusted] {
            offset.store(0, Relaxed);
        }
        self.lost.store(0, Relaxed);
        if is_ours {
            self.lock.release();
        }
    }

    /// Whether the session takes time samples.
    #[inline]
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.are_wanted.load(Acquire)
    }

    /// Whether ticks are stored: not in a forked child before its first recording, either.
    #[inline]
    #[must_use]
    pub fn are_stored(&self) -> bool {
        !self.are_paused.load(Relaxed)
    }

    /// Stores a tick of the calling thread, or counts it as lost. Safe in a signal handler.
    pub fn store(&self, word: u64, stack: &[u8]) {
        self.store_samples(word, 1, stack);
    }

    /// As [`store`](Self::store), for a tick that stands for several samples.
    pub fn store_samples(&self, word: u64, samples: u64, stack: &[u8]) {
        self.with_lock(samples, || {
            stack.len() <= LONGEST_STACK && self.append(word, stack, &(0..0))
        });
    }

    /// Calls `walk` with room for a stack, and stores the tick of the calling thread. If `walk` returns `None`, or the tick
    /// cannot be stored, counts `samples` as lost. No other thread's `walk` runs at the same time. Safe in a signal
    /// handler.
    pub fn store_walked(
        &self,
        samples: u64,
        walk: impl FnOnce(&mut [u8; LONGEST_STACK]) -> Option<Walked>,
    ) {
        self.with_lock(samples, || {
            // SAFETY: this thread holds the lock, and the handler is not entered twice in one thread with it.
            let room = unsafe { &mut *self.walked.0.get() };
            walk(room).is_some_and(|walked| {
                let stack = &room[..walked.length.min(LONGEST_STACK)];
                self.append(walked.word, stack, &walked.memory)
            })
        });
    }

    /// Calls `store` with the lock. If it returns false, or cannot be called, counts `samples` as lost.
    fn with_lock(&self, samples: u64, store: impl FnOnce() -> bool) {
        if self.are_paused.load(Relaxed) {
            return;
        }
        if !self.lock.acquire() {
            self.lose_several(samples);
            return;
        }
        // The ticks may have ended while this thread waited.
        let is_stored = self.are_paused.load(Relaxed) || store();
        self.lock.release();
        if !is_stored {
            self.lose_several(samples);
        }
    }

    /// Appends a tick of the calling thread to the file. The caller holds the lock.
    fn append(&self, word: u64, stack: &[u8], memory: &Range<usize>) -> bool {
        // What was read before must not be written to before.
        let backlog = self.file.length() - self.read.load(Acquire);
        if backlog > LARGEST_BACKLOG {
            return false;
        }
        if backlog == 0 {
            self.file.rewind();
        }
        let has_room = backlog <= LARGEST_WITH_MEMORY && memory.len() <= LONGEST_MEMORY;
        let none = 0..0;
        let memory = if has_room { memory } else { &none };
        // SAFETY: gettid has no precondition and is safe in a signal handler.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) }.cast_unsigned();
        // The length of the memory is filled in.
        let words = [monotonic_nanos(), thread, word, stack.len() as u64, 0];
        let mut header = [0; HEADER];
        for (place, word) in header.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.file.append_with_memory(&mut header, stack, memory)
    }

    /// Counts a tick without a stack as lost. Safe in a signal handler.
    pub fn lose(&self) {
        self.lose_several(1);
    }

    /// Counts several samples as lost. Safe in a signal handler.
    pub fn lose_several(&self, samples: u64) {
        self.lost.fetch_add(samples, Relaxed);
    }

    /// Whether there are ticks that are not recorded.
    #[inline]
    #[must_use]
    pub fn are_waiting(&self) -> bool {
        self.are_wanted() && self.read.load(Relaxed) < self.file.length()
    }

    /// Makes all ticks that are not recorded yet count as lost: what their stacks refer to may be gone.
    pub fn distrust(&self) {
        self.distrusted.store(self.file.length(), Relaxed);
    }

    /// Records at most `most` of the stored ticks, and returns how many were read. `place` turns a tick into samples,
    /// or returns `None` if that is not possible.
    pub(crate) fn record<'a>(
        &self,
        recording: &mut Recording<'a>,
        most: usize,
        mut place: impl FnMut(&mut Recording<'a>, &Tick<'_>) -> Option<TickSamples>,
    ) -> usize {
        if !self.are_wanted() {
            return 0;
        }
        // SAFETY: there is a recording, and the reference is not used after this statement.
        let mut buffer = std::mem::take(unsafe { &mut *self.buffer.0.get() });
        let mut read = 0;
        while read < most {
            let at = self.read.load(Relaxed);
            let Some(tick) = self.next(&mut buffer) else {
                break;
            };
            read += 1;
            let known = at >= self.distrusted.load(Relaxed);
            let place = known.then(|| place(recording, &tick)).flatten();
            match (recording.thread(tick.thread), place) {
                (Some(thread), Some(place)) => {
                    let sample = CpuSample {
                        time: recording.at(tick.monotonic_nanos),
                        thread,
                        stack: place.stack,
                        labels: place.labels,
                        source: SourceId::TIME,
                    };
                    for _ in 0..place.samples {
                        recording.cpu(sample);
                    }
                }
                (_, place) => {
                    let samples = place.map_or(1, |place| place.samples);
                    recording.lost(LostKind::CpuSamples, samples.into());
                }
            }
        }
        recording.lost(LostKind::CpuSamples, self.lost.swap(0, Relaxed));
        // SAFETY: as above.
        unsafe { *self.buffer.0.get() = buffer };
        read
    }

    /// The next unread tick, in `buffer`, whose content does not matter. Only the current recording may call this.
    pub(crate) fn next<'a>(&self, buffer: &'a mut Vec<u8>) -> Option<Tick<'a>> {
        let at = self.read.load(Relaxed).max(self.file.start());
        if at >= self.file.length() {
            return None;
        }
        let kept_from = self.forgotten.load(Relaxed).max(self.file.start());
        if at - kept_from > FORGET_AFTER {
            self.file.forget(at);
            self.forgotten.store(at, Relaxed);
        }
        let mut header = [0; HEADER];
        self.read_whole(&mut header, at)?;
        let [monotonic_nanos, thread, word, stack, memory] = words(&header);
        let stack = (stack as usize).min(LONGEST_STACK);
        let length = stack + (memory as usize).min(LONGEST_MEMORY);
        if buffer.len() < length {
            buffer.try_reserve(length - buffer.len()).ok()?;
            buffer.resize(length, 0);
        }
        self.read_whole(&mut buffer[..length], at + HEADER as i64)?;
        // From here on, the handler may write to this place.
        self.read.store(at + (HEADER + length) as i64, Release);
        let (stack, memory) = buffer[..length].split_at(stack);
        Some(Tick {
            monotonic_nanos,
            thread,
            word,
            stack,
            memory,
        })
    }

    fn read_whole(&self, into: &mut [u8], at: i64) -> Option<()> {
        (self.file.read(into, at)? == into.len()).then_some(())
    }

    /// Called before a fork; see [`crate::fork`].
    pub(crate) fn before_fork(&self) {
        self.lock.acquire_for_fork();
    }

    pub(crate) fn after_fork_in_parent(&self) {
        self.lock.release_in_parent();
    }

    pub(crate) fn after_fork_in_child(&self) {
        self.lock.release_in_child();
        self.are_paused.store(true, Relaxed);
        // The ticks that wait are the parent's, which records them itself.
        self.read.store(self.file.length(), Relaxed);
        self.lost.store(0, Relaxed);
    }
}

fn words(header: &[u8; HEADER]) -> [u64; HEADER / 8] {
    let mut words = [0; HEADER / 8];
    for (word, bytes) in words.iter_mut().zip(header.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}
