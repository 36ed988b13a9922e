//! Ticks of a clock that signals: time samples, from the signal handler to the file.
//!
//! A handler can neither intern a stack nor wait for a lock for long. It stores what it has seen, in a file in memory:
//! the time, the thread, a word and a stack as bytes, both of the host's own form. A later recording, of whatever thread,
//! makes [`CpuSample`]s of them: [`Recording::ticks`].
//!
//! The host installs the handler and the timer. Each tick that the handler is called for is either
//! [stored](Ticks::store), [missed](Ticks::miss) because it fell into a walk of the same thread's stack, to be
//! recorded with that stack, or [lost](Ticks::lose).
//!
//! Forks: no handler is storing while the process forks. The child stores nothing until the host
//! [begins anew](Ticks::begin), for the file is the parent's.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};

use nthbyte_profile::event::{CpuSample, LabelSetId, LostKind, NodeId, SourceId};

use crate::clock::monotonic_nanos;
use crate::lock::Lock;
use crate::process::MemoryFile;
use crate::session::Recording;

/// Bytes of a stack, at most; a longer one is lost.
pub const LONGEST_STACK: usize = 8192;
/// What precedes a stack in the file: time, thread, word, length.
const HEADER: usize = 32;
/// Ticks that were read keep at most so much memory.
const FORGET_AFTER: i64 = 1 << 20;

/// The ticks of this process.
pub static TICKS: Ticks = Ticks::new();

/// Ticks that wait to be recorded.
pub struct Ticks {
    are_wanted: AtomicBool,
    /// Whether there is no file to store them in.
    are_paused: AtomicBool,
    /// Of whoever stores one.
    lock: Lock,
    file: MemoryFile,
    missed: AtomicU32,
    lost: AtomicU64,
    /// Offsets of the one recording that there is at a time.
    read: AtomicI64,
    forgotten: AtomicI64,
}

/// What a handler has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick<'a> {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_nanos: u64,
    /// The operating system's number of the thread.
    pub thread: u64,
    /// The host's: what the collector was doing, for example.
    pub word: u64,
    /// The stack, in the host's form.
    pub stack: &'a [u8],
}

impl Ticks {
    const fn new() -> Self {
        Self {
            are_wanted: AtomicBool::new(false),
            are_paused: AtomicBool::new(true),
            lock: Lock::new(),
            file: MemoryFile::none(),
            missed: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            read: AtomicI64::new(0),
            forgotten: AtomicI64::new(0),
        }
    }

    /// Begins to store ticks, if they are wanted: for a session, or again in the child of a fork.
    ///
    /// # Errors
    /// There is no descriptor, or no memory, left.
    pub fn begin(&self, are_wanted: bool) -> io::Result<()> {
        self.end();
        if are_wanted {
            self.file.make()?;
            self.are_paused.store(false, Relaxed);
            self.are_wanted.store(true, Release);
        }
        Ok(())
    }

    /// Stores no more ticks, and forgets those that were not recorded. No handler runs.
    pub fn end(&self) {
        self.are_wanted.store(false, Relaxed);
        self.are_paused.store(true, Relaxed);
        self.file.close();
        for offset in [&self.read, &self.forgotten] {
            offset.store(0, Relaxed);
        }
        self.missed.store(0, Relaxed);
        self.lost.store(0, Relaxed);
    }

    /// Whether time samples are wanted.
    #[inline]
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.are_wanted.load(Acquire)
    }

    /// Stores a tick of the calling thread, or counts it as lost. Safe in a signal handler.
    pub fn store(&self, word: u64, stack: &[u8]) {
        if self.are_paused.load(Relaxed) {
            return;
        }
        if stack.len() > LONGEST_STACK || !self.lock.acquire() {
            self.lose();
            return;
        }
        // SAFETY: gettid has no precondition and is safe in a signal handler.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) }.cast_unsigned();
        let words = [monotonic_nanos(), thread, word, stack.len() as u64];
        let mut header = [0; HEADER];
        for (place, word) in header.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let is_stored = self.file.append_both(&header, stack);
        self.lock.release();
        if !is_stored {
            self.lose();
        }
    }

    /// Counts a tick that fell into a walk of the same thread's stack. Safe in a signal handler.
    pub fn miss(&self) {
        self.missed.fetch_add(1, Relaxed);
    }

    /// Counts a tick for which there is no stack. Safe in a signal handler.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// Ticks that were [missed](Ticks::miss) since the last call: each is a time sample of the stack that was walked.
    #[inline]
    #[must_use]
    pub fn take_missed(&self) -> u32 {
        // The exchange takes longer than all else that is asked at each sample.
        match self.missed.load(Relaxed) {
            0 => 0,
            _ => self.missed.swap(0, Relaxed),
        }
    }

    /// Records what was stored; `stack` makes a node of a tick's stack, or has no room for it.
    pub(crate) fn record<'a>(
        &self,
        recording: &mut Recording<'a>,
        mut stack: impl FnMut(&mut Recording<'a>, &Tick<'_>) -> Option<NodeId>,
    ) {
        if !self.are_wanted() {
            return;
        }
        let mut buffer = [0; LONGEST_STACK];
        while let Some(tick) = self.next(&mut buffer) {
            let thread = recording.thread(tick.thread);
            match (thread, stack(recording, &tick)) {
                (Some(thread), Some(stack)) => {
                    let time = recording.at(tick.monotonic_nanos);
                    recording.cpu(CpuSample {
                        time,
                        thread,
                        stack,
                        labels: LabelSetId::NONE,
                        source: SourceId::TIME,
                    });
                }
                _ => recording.lost(LostKind::CpuSamples, 1),
            }
        }
        recording.lost(LostKind::CpuSamples, self.lost.swap(0, Relaxed));
    }

    /// The next tick that was not read yet. For whoever records.
    fn next<'a>(&self, buffer: &'a mut [u8; LONGEST_STACK]) -> Option<Tick<'a>> {
        let at = self.read.load(Relaxed).max(self.file.start());
        if at >= self.file.length() {
            return None;
        }
        if at - self.forgotten.load(Relaxed) > FORGET_AFTER {
            self.file.forget(at);
            self.forgotten.store(at, Relaxed);
        }
        let mut header = [0; HEADER];
        self.file.read(&mut header, at)?;
        let [monotonic_nanos, thread, word, length] = words(&header);
        let length = (length as usize).min(LONGEST_STACK);
        self.file.read(&mut buffer[..length], at + HEADER as i64)?;
        self.read.store(at + (HEADER + length) as i64, Relaxed);
        Some(Tick {
            monotonic_nanos,
            thread,
            word,
            stack: &buffer[..length],
        })
    }

    /// See [`crate::fork`].
    pub(crate) fn before_fork(&self) {
        self.lock.acquire_for_fork();
    }

    pub(crate) fn after_fork_in_parent(&self) {
        self.lock.release_in_parent();
    }

    pub(crate) fn after_fork_in_child(&self) {
        self.lock.release_in_child();
        self.are_paused.store(true, Relaxed);
        self.missed.store(0, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_in_order() {
        let ticks = Ticks::new();
        ticks.store(1, b"nobody wants it");
        ticks.begin(true).unwrap();
        ticks.store(7, b"first");
        ticks.store(8, b"");
        ticks.store(9, &[1; LONGEST_STACK + 1]);
        let mut buffer = [0; LONGEST_STACK];
        let first = ticks.next(&mut buffer).unwrap();
        assert_eq!((first.word, first.stack), (7, &b"first"[..]));
        let time = first.monotonic_nanos;
        let second = ticks.next(&mut buffer).unwrap();
        assert_eq!((second.word, second.stack), (8, &b""[..]));
        assert!(second.monotonic_nanos >= time);
        assert_eq!(ticks.next(&mut buffer), None);
        assert_eq!(ticks.lost.load(Relaxed), 1);

        // A handler that interrupts one is counted; a child does not write to what its parent reads.
        assert!(ticks.lock.acquire());
        ticks.store(1, b"interrupted");
        assert_eq!(ticks.lost.load(Relaxed), 2);
        ticks.lock.release();
        ticks.miss();
        assert_eq!((ticks.take_missed(), ticks.take_missed()), (1, 0));
        ticks.before_fork();
        ticks.after_fork_in_child();
        ticks.store(1, b"the child's");
        assert_eq!(
            (ticks.next(&mut buffer), ticks.lost.load(Relaxed)),
            (None, 0)
        );
        ticks.begin(true).unwrap();
        ticks.store(2, b"the child's");
        assert_eq!(ticks.next(&mut buffer).map(|tick| tick.word), Some(2));
        ticks.end();
    }
}
