//! What a sample costs, as far as this crate's clocks see it.
//!
//! `CLOCK_MONOTONIC` is read for a timed sample: the thread's CPU clock takes a system call, which is as long as a sample.
//! Where another thread interrupts a timed sample, that counts as [`OUTLIER`] says. The writer thread knows its own CPU
//! time, and the number of records that it took. A sample costs its own mean time, the mean time of a free, two records, and
//! [`OUTSIDE`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::clock::monotonic_nanos;

/// One in this many samples, and one in this many frees, is timed.
pub(super) const TIMED: u32 = 32;
/// One value counts at most this many times the mean.
const OUTLIER: u64 = 4;
/// The first samples of a session, and the most that a sample, a free and a record of them are taken to cost, in nanoseconds.
/// While a program starts, nearly each sample has a new stack and costs many times what later ones do.
const FIRST: u32 = 4096;
const MOST_AT_FIRST: [u32; 3] = [1000, 250, 250];
/// The most after that: the fewer samples are taken, the colder are the caches for each, and so few samples must not seem so
/// dear that even fewer are taken.
pub(super) const MOST: [u32; 3] = [20_000, 2000, 1000];
/// What a sample takes outside of its recording, in nanoseconds: the slow path of the host's allocator, the cuts of the
/// lists, and what all of it displaces from the caches. Measured from outside (the CPU time of programs with a period of 16 KiB,
/// over that with 64 MiB, by their samples; CPython 3.11, a calm machine), a sample costs 1.0 to 1.7 µs, of which its
/// recording, its free and its records are 0.8 to 1.1.
pub(super) const OUTSIDE: f64 = 500.0;

/// A running mean of nanoseconds, over about eight values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean(pub(super) u32);

impl Mean {
    pub(super) fn add(&mut self, nanos: u64) {
        let limit = (u64::from(self.0) * OUTLIER).max(64);
        let mean = (u64::from(self.0) * 7 + nanos.min(limit)) / 8;
        self.0 = u32::try_from(mean).unwrap_or(u32::MAX).max(1);
    }
}

/// Mean CPU time of a record in the writer thread, in nanoseconds; 0 before it is known.
#[derive(Debug, Default)]
pub(super) struct RecordCost(AtomicU32);

impl RecordCost {
    pub(super) fn nanos(&self) -> u32 {
        match self.0.load(Relaxed) {
            // What a record usually takes.
            0 => 150,
            known => known,
        }
    }

    /// Only the writer thread calls this.
    pub(super) fn add(&self, nanos: u64) {
        let mut mean = Mean(self.nanos());
        mean.add(nanos);
        self.0.store(mean.0, Relaxed);
    }
}

/// Which recording is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Sample,
    End,
}

/// The costs of samples and frees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Samples so far, up to [`FIRST`].
    samples: u32,
    /// Mean time of the recording of a sample, and of a free.
    pub(super) sample: Mean,
    pub(super) end: Mean,
    /// Recordings of frees, and the frees in them.
    ends: u32,
    frees: u32,
    /// `frees`, and the number of recorded samples, when the timed recording began.
    before: (u32, u32),
}

impl Cost {
    /// Begins with what they usually are.
    pub(super) const fn new() -> Self {
        Self {
            samples: 0,
            sample: Mean(500),
            end: Mean(150),
            ends: 0,
            frees: 0,
            before: (0, 0),
        }
    }

    pub(super) const fn of_child(&self) -> Self {
        Self {
            samples: self.samples,
            sample: self.sample,
            end: self.end,
            ..Self::new()
        }
    }

    /// The cost of a sample with all that belongs to it, in nanoseconds. `record`: CPU time of a record.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(super) fn of_sample(&self, record: u32) -> f64 {
        let most = if self.samples < FIRST {
            MOST_AT_FIRST
        } else {
            MOST
        };
        let [sample, end, record] = [self.sample.0, self.end.0, record];
        let recordings = f64::from(sample.min(most[0])) + f64::from(end.min(most[1]));
        OUTSIDE + recordings + 2.0 * f64::from(record.min(most[2]))
    }

    pub(super) fn count(&mut self, samples: u32) {
        self.samples = self.samples.saturating_add(samples).min(FIRST);
    }

    #[inline(always)]
    pub(super) const fn count_end(&mut self) -> bool {
        self.ends = self.ends.wrapping_add(1);
        self.ends.is_multiple_of(TIMED)
    }

    #[inline(always)]
    pub(super) const fn freed(&mut self) {
        self.frees = self.frees.wrapping_add(1);
    }

    #[unsafe(link_section = "nthbyte_hot")]
    pub(super) fn begin_timed(&mut self, samples: u32) -> u64 {
        self.before = (self.frees, samples);
        monotonic_nanos().max(1)
    }

    #[unsafe(link_section = "nthbyte_hot")]
    pub(super) fn end_timed(&mut self, kind: Timed, begun: u64, samples: u32) {
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
