//! The period by itself: `--every auto`, the default.
//!
//! A session of this kind begins with [`FIRST_PERIOD`]. From then on, the period follows the program, such that
//!
//! - sampling takes [`SHARE`] of the CPU time of the process; periods up to [`KEPT_PERIOD`] are also allowed while it takes
//!   less than [`SHARE_OF_PROCESSOR`] of a processor, and
//! - the file grows by [`FILE_START`] bytes in the first minutes and by [`FILE_RATE`] bytes a second after them.
//!
//! # How the share is measured
//!
//! Samples are counted, and one in [`TIMED`] is timed; so is one free in [`TIMED`]. `CLOCK_MONOTONIC` is read for that: the
//! thread's CPU clock takes a system call, which is as long as a sample. Where another thread interrupts a timed sample,
//! that counts as [`OUTLIER`] says. The writer thread knows its own CPU time, and the number of records that it took. A
//! sample costs its own mean time, the mean time of a free, two records, and [`OUTSIDE`]. At a decision, the CPU time of the
//! process since the last one is read, which says how many samples would have taken the share.
//!
//! # When it is decided
//!
//! In the recording of a sample: after [`FIRST_SAMPLES`], then after [`SAMPLES`] each, or at the first sample after
//! [`DECIDE_AFTER`]. So a program that allocates gigabytes a second has another period after some hundred samples, and
//! one that allocates little pays nothing. The period is a power of two. It becomes at most [`FASTEST`] times longer or
//! shorter at once, and stays where it is while the share lies between a third of the limit and the limit. The hosts
//! change their samplers at their own next sample; what a sample stands for is the period under which its sample point
//! was drawn ([`Recording::allocation`](crate::Recording::allocation)).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nthbyte_profile::event::Nanos;

use crate::clock::monotonic_nanos;

/// The period at first, in bytes, and the shortest one. Without an interpreter's memory, it is [`SHORTEST_NATIVE_PERIOD`].
pub const FIRST_PERIOD: u64 = 16 << 10;
/// The longest period, in bytes.
pub const LONGEST_PERIOD: u64 = 64 << 20;
/// The shortest period for native memory, in bytes: there, a sampled block takes an OS page of its own, so that this
/// period wastes less than a fiftieth.
pub const SHORTEST_NATIVE_PERIOD: u64 = 256 << 10;

/// The part of the CPU time of the process that sampling may take. The decisions aim a little lower.
pub const SHARE: f64 = 0.005;
const AIM: f64 = 0.9 * SHARE;

/// A period up to this one, in bytes, is kept while sampling takes less than [`SHARE_OF_PROCESSOR`] of a processor's time,
/// whether the process uses that or not. A service that waits most of the time would otherwise have few samples, although
/// nobody notices their cost.
const KEPT_PERIOD: u64 = 512 << 10;
const SHARE_OF_PROCESSOR: f64 = 0.001;

/// Bytes that the file may have soon: most of them within five minutes.
const FILE_START: f64 = 10e6;
/// Bytes a second after that, and how many of them may be saved for later: 10 MB in any hour.
const FILE_RATE: f64 = 8.5e6 / 3600.0;
const FILE_SAVED: f64 = 1e6;
/// What the file may still grow by is spent at this time constant, in seconds.
const FILE_TIME: f64 = 120.0;
/// Bytes of the file for each sample. If samples take more, the file's budget says so soon.
const FILE_SAMPLE: f64 = 10.0;
/// Samples a second that are always taken: what else is in the file (time samples, collections) must not end sampling.
const LEAST_SAMPLES: f64 = 75.0;

/// Samples until the first decision, and between two later ones.
const FIRST_SAMPLES: u32 = 512;
const SAMPLES: u32 = 256;
/// At the first sample after this time, it is decided in any case.
const DECIDE_AFTER: u64 = 100_000_000;
/// One in this many samples, and one in this many frees, is timed.
const TIMED: u32 = 32;
/// A decision makes the period at most this many times longer or shorter: the costs of the first samples, whose stacks are
/// new and whose memory is touched for the first time, say little of later ones.
const FASTEST: u64 = 8;
/// One value counts at most this many times the mean, for the same reason.
const OUTLIER: u64 = 4;
/// The most that a sample, a free and a record are taken to cost, in nanoseconds. While a program starts, nearly each sample
/// has a new stack and costs many times what later ones do; and the fewer samples are taken, the colder are the caches for
/// each. Without a limit, few samples would seem so dear that even fewer were taken.
const MOST_SAMPLE: u32 = 2000;
const MOST_END: u32 = 400;
const MOST_RECORD: u32 = 250;
/// What a sample takes outside of its recording, in nanoseconds: the slow path of the host's allocator, the cuts of the
/// lists, and what all of it displaces from the caches. Measured from outside, a sample costs more than its recording: 3.8 µs
/// in lark with 21,000 samples a second (CPython 3.11, a busy machine).
const OUTSIDE: f64 = 1000.0;

/// What the writer thread tells.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// Bytes of the file.
    file: AtomicU64,
    /// Mean CPU time of a record in the writer thread, in nanoseconds; 0 before it is known.
    record: AtomicU32,
}

impl Spent {
    /// Called by the writer thread.
    pub(crate) fn set_file(&self, bytes: u64) {
        self.file.store(bytes, Relaxed);
    }

    /// The time that fewer records take says more of the thread's wake than of the records.
    pub(crate) const ENOUGH_RECORDS: usize = 256;

    /// Called by the writer thread when it has taken this many records in this CPU time.
    pub(crate) fn took(&self, records: usize, nanos: u64) {
        if records >= Self::ENOUGH_RECORDS {
            let mut mean = Mean::of(self.record.load(Relaxed));
            mean.add(nanos / records as u64);
            self.record.store(mean.0, Relaxed);
        }
    }

    /// Begins again, for another file.
    pub(crate) fn reset(&self) {
        self.file.store(0, Relaxed);
    }
}

/// A running mean of nanoseconds, over about eight values.
#[derive(Clone, Copy, Debug)]
struct Mean(u32);

impl Mean {
    /// `0`: not known yet; the first values are then taken for what a record usually takes.
    fn of(nanos: u32) -> Self {
        Self(if nanos == 0 { 150 } else { nanos })
    }

    fn add(&mut self, nanos: u64) {
        let limit = (u64::from(self.0) * OUTLIER).max(64);
        let mean = (u64::from(self.0) * 7 + nanos.min(limit)) / 8;
        self.0 = u32::try_from(mean).unwrap_or(u32::MAX).max(1);
    }
}

/// The clocks and the file at a decision.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The session's time.
    now: u64,
    /// CPU time of the process, in nanoseconds.
    cpu: u64,
    /// Bytes of the file.
    file: u64,
}

/// Which recording is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Sample,
    End,
}

/// Decides about the period of a session.
#[derive(Debug)]
pub(crate) struct Pace {
    is_auto: bool,
    period: u64,
    /// The period at first, which is the shortest one.
    shortest: u64,
    /// Samples since the last decision, and their number at which the next one is due.
    taken: u32,
    decide_at: u32,
    /// The session's time from which the next sample decides.
    due: u64,
    last: Seen,
    /// Bytes that the file may still grow by.
    file_left: f64,
    /// Mean CPU time of the recording of a sample, and of a free.
    sample: Mean,
    end: Mean,
    /// Recordings of frees, and the frees in them.
    ends: u32,
    frees: u32,
    /// `frees`, and the number of recorded samples, when the timed recording began.
    before: (u32, u32),
}

impl Pace {
    /// `is_auto`: whether the period changes. It does not become shorter than `period`.
    pub(crate) fn new(is_auto: bool, period: u64) -> Self {
        Self {
            is_auto,
            period,
            shortest: period,
            taken: 0,
            decide_at: FIRST_SAMPLES,
            due: DECIDE_AFTER,
            last: Seen {
                cpu: cpu_nanos(libc::CLOCK_PROCESS_CPUTIME_ID),
                ..Seen::default()
            },
            file_left: FILE_START,
            sample: Mean(1000),
            end: Mean(250),
            ends: 0,
            frees: 0,
            before: (0, 0),
        }
    }

    /// The pace of a forked child. It begins with the parent's period, and has a file of its own.
    pub(crate) fn of_child(&self) -> Self {
        Self {
            shortest: self.shortest,
            sample: self.sample,
            end: self.end,
            decide_at: SAMPLES,
            ..Self::new(self.is_auto, self.period)
        }
    }

    pub(crate) const fn is_auto(&self) -> bool {
        self.is_auto
    }

    /// The period of the interpreter's memory, in bytes; without an interpreter, that of native memory.
    #[inline]
    pub(crate) const fn period(&self) -> u64 {
        self.period
    }

    /// Counts a sample. Returns whether something more is to be done with it: see [`Pace::look`].
    #[inline(always)]
    pub(crate) const fn count(&mut self, now: Nanos) -> bool {
        self.taken = self.taken.wrapping_add(1);
        self.is_auto && (self.taken.is_multiple_of(TIMED) || now.0 >= self.due)
    }

    /// Counts a recording of another kind. Returns whether it is to be timed.
    #[inline(always)]
    pub(crate) const fn count_end(&mut self) -> bool {
        self.ends = self.ends.wrapping_add(1);
        self.is_auto && self.ends.is_multiple_of(TIMED)
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) const fn freed(&mut self) {
        self.frees = self.frees.wrapping_add(1);
    }

    /// Decides, if that is due. Returns the period if it has changed.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn look(&mut self, now: Nanos, spent: &Spent) -> Option<u64> {
        if self.taken < self.decide_at && now.0 < self.due {
            return None;
        }
        let seen = Seen {
            now: now.0,
            cpu: cpu_nanos(libc::CLOCK_PROCESS_CPUTIME_ID),
            file: spent.file.load(Relaxed),
        };
        let record = Mean::of(spent.record.load(Relaxed)).0;
        self.decide(seen, record)
    }

    /// `record`: CPU time of a record in the writer thread.
    #[unsafe(link_section = "nthbyte_hot")]
    fn decide(&mut self, seen: Seen, record: u32) -> Option<u64> {
        let seconds = seen.now.saturating_sub(self.last.now) as f64 / 1e9;
        let cpu = seen.cpu.saturating_sub(self.last.cpu) as f64;
        let grown = seen.file.saturating_sub(self.last.file) as f64;
        self.file_left -= grown;
        if self.file_left < FILE_SAVED {
            self.file_left = (self.file_left + FILE_RATE * seconds).min(FILE_SAVED);
        }
        let [sample, end, record] = [self.sample.0, self.end.0, record];
        let recordings = f64::from(sample.min(MOST_SAMPLE)) + f64::from(end.min(MOST_END));
        let cost = OUTSIDE + recordings + 2.0 * f64::from(record.min(MOST_RECORD));
        let by_cpu = AIM * cpu / cost;
        let by_processor = SHARE_OF_PROCESSOR * seconds * 1e9 / cost;
        let by_file = (self.file_left / FILE_TIME / FILE_SAMPLE).max(LEAST_SAMPLES) * seconds;
        let taken = f64::from(self.taken);
        self.last = seen;
        self.taken = 0;
        self.decide_at = SAMPLES;
        self.due = seen.now + DECIDE_AFTER;
        let next = |allowed: f64| {
            let load = taken / allowed.min(by_file).max(1e-6);
            next_period(self.period, load, self.shortest)
        };
        let mut period = next(by_cpu);
        if period > KEPT_PERIOD && by_processor > by_cpu {
            period = next(by_processor).max(KEPT_PERIOD);
        }
        (std::mem::replace(&mut self.period, period) != period).then_some(period)
    }

    /// Begins to time a recording. `samples`: how many were recorded before. Returns the time, which is not 0.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn begin_timed(&mut self, samples: u32) -> u64 {
        self.before = (self.frees, samples);
        monotonic_nanos().max(1)
    }

    /// Ends the timing of a recording that began at `begun`.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn end_timed(&mut self, kind: Timed, begun: u64, samples: u32) {
        let nanos = monotonic_nanos().saturating_sub(begun);
        if kind == Timed::Sample {
            return self.sample.add(nanos);
        }
        let frees = self.frees.wrapping_sub(self.before.0);
        let recorded = samples.wrapping_sub(self.before.1);
        // A recording of few ends without a free is one of something else: a collection.
        if frees > 0 || recorded >= 64 {
            self.end.add(nanos / u64::from(frees.max(recorded)));
        }
    }
}

/// The next period: a power of two from `shortest` on, if the present one takes `load` times as many samples as are
/// allowed.
#[unsafe(link_section = "nthbyte_hot")]
fn next_period(period: u64, load: f64, shortest: u64) -> u64 {
    let wanted = |margin: f64| {
        let bytes = (period as f64 * load * margin).clamp(1.0, LONGEST_PERIOD as f64);
        (bytes as u64).next_power_of_two()
    };
    let next = if load > 1.1 {
        wanted(1.0 / 1.1).min(period * FASTEST)
    } else if load < 0.4 {
        wanted(1.25).max(period / FASTEST)
    } else {
        period
    };
    next.clamp(shortest, LONGEST_PERIOD)
}

/// A CPU clock in nanoseconds.
#[unsafe(link_section = "nthbyte_hot")]
pub(crate) fn cpu_nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result. If the call fails, the result is 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests;
