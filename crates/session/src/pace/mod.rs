//! The period by itself: `--every auto`, the default.
//!
//! A session of this kind begins with [`FIRST_PERIOD`]. From then on, the periods follow the program: one for the memory of
//! the interpreter, one for native memory. Both are such that
//!
//! - sampling takes [`SHARE`] of the CPU time of the process, and [`START`] beyond that soon after the start;
//! - at least [`LEAST_SAMPLES`] a second are allowed, while they take less than [`SHARE_OF_PROCESSOR`] of a processor; but
//! - of a process that waits most of the time, they take [`SHARE_OF_WAITING`] of its CPU time, where a sample is taken to cost
//!   [`COLD`], or are [`FEWEST_SAMPLES`] a second, and
//! - the file grows by [`FILE_START`] bytes in the first minutes and by [`FILE_RATE`] bytes a second after them.
//!
//! A period is longer than the shortest one only because of one of these, and becomes shorter when that is over. Native memory
//! and the interpreter's share the allowance: each may have half of it, and what the other one leaves.
//!
//! # What a sample costs
//!
//! Samples are counted, and one in [`TIMED`] is timed; so is one free in [`TIMED`]: see [`cost`]. What a sample makes the
//! program pay elsewhere is found by [trials](trial): now and then the periods are four times as long for a moment, and the
//! CPU time for the same work is compared. At a decision, the CPU time of the process since the last one is read, which says
//! how many samples would have taken the share.
//!
//! # When it is decided
//!
//! In the recording of a sample: after [`FIRST_SAMPLES`], then after [`SAMPLES`] each, or at the first sample after
//! [`DECIDE_AFTER`]. So a program that allocates gigabytes a second has another period after some hundred samples, and
//! one that allocates little pays nothing. Where no sample comes for [`IDLE_AFTER`], the writer thread decides. A
//! period is a power of two, or a quarter, half or three quarters of the way to the next. It becomes at most
//! [`FASTEST`](tally::FASTEST) times longer or shorter at once, and stays where it is while the number of samples lies
//! between 0.7 of the allowance and all of it. The hosts change their samplers at their own next sample; what a sample
//! stands for is the period under which its sample point was drawn
//! ([`Recording::allocation`](crate::Recording::allocation)).

mod cost;
mod tally;
mod trial;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::clock;
use nthbyte_profile::event::Nanos;

use cost::{Cost, RecordCost, TIMED};
use tally::Tally;
use trial::{LONGER, Trial};

pub(crate) use cost::Timed;
pub(crate) use tally::Kind;

/// The period at first, in bytes, and the shortest one. Without an interpreter's memory, it is [`SHORTEST_NATIVE_PERIOD`].
pub const FIRST_PERIOD: u64 = 16 << 10;
/// The longest period, in bytes: the longest that there is. A program that takes address space only, and never touches it, can
/// take a terabyte in some milliseconds.
pub const LONGEST_PERIOD: u64 = nthbyte_sampling::Period::MAX;
/// The shortest period for native memory, in bytes: there, a sampled block takes an OS page of its own, so that this
/// period wastes less than a fiftieth.
pub const SHORTEST_NATIVE_PERIOD: u64 = 256 << 10;

/// The part of the CPU time of the process that sampling may take. The decisions aim a little lower.
pub const SHARE: f64 = 0.005;
const AIM: f64 = 0.9 * SHARE;
/// CPU time beyond the share, in nanoseconds, that sampling may take once. It lets programs of a second, and the start of all
/// others, have short periods.
const START: f64 = 16e6;
/// Its rest is spent at this time constant, in nanoseconds of CPU time.
const START_TIME: f64 = 0.5e9;

/// Samples a second that are allowed while the process does not wait, whatever its share and whatever else is in the file (time
/// samples, collections). As there are steps of periods, at least 110 are taken.
const LEAST_SAMPLES: f64 = 180.0;
/// They do not take more of a processor's time than this, whether the process uses that or not.
const SHARE_OF_PROCESSOR: f64 = 0.001;

/// A process that waits finds its caches cold after each wait, and a sample brings more that is not in them: its own code, the
/// lists of free blocks near its sample point. No clock of the pace sees that. A FastAPI service that has a full collection
/// of 550,000 objects every seven seconds paid 22 µs for each of 150 samples a second (CPython 3.11, 0.09 of a processor, from
/// a profile of the processor by `perf`).
const COLD: f64 = 20_000.0;
/// The part of the CPU time of a process that waits that its samples may take, if each costs [`COLD`].
const SHARE_OF_WAITING: f64 = 0.01;
/// A process that uses less of a processor than the first part waits; one that uses more than the second part does not.
const WAITS: (f64, f64) = (0.25, 0.75);
/// Samples a second that are allowed however little of a processor such a process uses: 36,000 an hour.
const FEWEST_SAMPLES: f64 = 10.0;

/// Bytes that the file may have soon: most of them within ten minutes.
const FILE_START: f64 = 20e6;
/// Bytes a second after that, and how many of them may be saved for later: 10 MB in any hour.
const FILE_RATE: f64 = 8.5e6 / 3600.0;
const FILE_SAVED: f64 = 1e6;
/// What the file may still grow by is spent at this time constant, in seconds.
const FILE_TIME: f64 = 120.0;
/// Bytes of the file for each sample. If samples take more, the file's budget says so soon.
const FILE_SAMPLE: f64 = 10.0;

/// Samples until the first decision, and between two later ones.
const FIRST_SAMPLES: u32 = 512;
const SAMPLES: u32 = 256;
/// At the first sample after this time, it is decided in any case.
const DECIDE_AFTER: u64 = 100_000_000;
/// If no sample has come for so long, it is decided without one.
const IDLE_AFTER: u64 = 2 * DECIDE_AFTER;
/// With the ring so full that the writer thread does not keep up, the periods become this many times longer at least.
const CROWDED: f64 = 4.0;

/// What the writer thread tells.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// Bytes of the file.
    file: AtomicU64,
    record: RecordCost,
    /// The session's time from which it is decided without a sample; 0 if nothing can change then.
    idle_from: AtomicU64,
}

impl Spent {
    /// Whether the writer thread is to see to it that it is decided: see [`Pace::look`].
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        let from = self.idle_from.load(Relaxed);
        from != 0 && now.0 >= from
    }

    /// Called by the writer thread.
    pub(crate) fn set_file(&self, bytes: u64) {
        self.file.store(bytes, Relaxed);
    }

    /// The time that fewer records take says more of the thread's wake than of the records.
    pub(crate) const ENOUGH_RECORDS: usize = 256;

    /// Called by the writer thread when it has taken this many records in this CPU time.
    pub(crate) fn took(&self, records: usize, nanos: u64) {
        if records >= Self::ENOUGH_RECORDS {
            self.record.add(nanos / records as u64);
        }
    }

    /// Begins again, for another file.
    pub(crate) fn reset(&self) {
        self.file.store(0, Relaxed);
        self.idle_from.store(0, Relaxed);
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
    /// Mean CPU time of a record in the writer thread, in nanoseconds.
    record: u32,
    /// Whether more records are in the ring than the writer thread should let come together.
    is_crowded: bool,
}

/// The periods of a session, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periods([u64; 2]);

impl Periods {
    /// The periods of a session that begins with `period`.
    fn first(period: u64) -> Self {
        Self([period, period.max(SHORTEST_NATIVE_PERIOD)])
    }

    pub(crate) const fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// These periods, with the period of one kind so many times as long.
    fn with_longer(self, kind: Option<Kind>, factor: u64) -> Self {
        let mut longer = self;
        if let Some(kind) = kind {
            let period = &mut longer.0[kind as usize];
            *period = period.saturating_mul(factor).min(LONGEST_PERIOD);
        }
        longer
    }
}

/// Decides about the periods of a session.
#[derive(Debug)]
pub(crate) struct Pace {
    is_auto: bool,
    /// The periods that were decided, and the periods in force, which are longer during a trial.
    decided: Periods,
    present: Periods,
    /// The periods at first, which are the shortest ones.
    shortest: Periods,
    /// Samples since the last decision, the native ones among them that were recorded, and the number at which the next decision
    /// is due.
    taken: u32,
    native: u32,
    decide_at: u32,
    /// The tallies of the decisions since the decided period has changed last, the present ones above all.
    lately: [Tally; 2],
    /// The session's time from which the next sample decides.
    due: u64,
    last: Seen,
    /// CPU time, in nanoseconds, that sampling may still take beyond its share.
    start_left: f64,
    /// Bytes that the file may still grow by.
    file_left: f64,
    cost: Cost,
    trial: Trial,
}

impl Pace {
    /// `is_auto`: whether the periods change. They do not become shorter than `period`.
    pub(crate) fn new(is_auto: bool, period: u64) -> Self {
        let first = Periods::first(period);
        Self {
            is_auto,
            decided: first,
            present: first,
            shortest: first,
            taken: 0,
            native: 0,
            decide_at: FIRST_SAMPLES,
            lately: [Tally::NONE; 2],
            due: DECIDE_AFTER,
            last: Seen {
                cpu: clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0),
                ..Seen::default()
            },
            start_left: START,
            file_left: FILE_START,
            cost: Cost::new(),
            trial: Trial::new(),
        }
    }

    /// The pace of a forked child. It begins with the parent's periods, and has a file of its own.
    pub(crate) fn of_child(&self) -> Self {
        Self {
            decided: self.decided,
            present: self.decided,
            shortest: self.shortest,
            cost: self.cost.of_child(),
            decide_at: SAMPLES,
            start_left: 0.0,
            ..Self::new(self.is_auto, self.shortest.of(Kind::Own))
        }
    }

    pub(crate) const fn is_auto(&self) -> bool {
        self.is_auto
    }

    /// The period of the interpreter's memory, in bytes; without an interpreter, the period of native memory.
    #[inline]
    pub(crate) const fn period(&self) -> u64 {
        self.present.of(Kind::Own)
    }

    /// What the profile is to say of a cost that trials have found, once for each kind.
    #[inline]
    pub(crate) const fn take_note(&mut self) -> Option<&'static str> {
        match self.trial.take_news() {
            None => None,
            Some(Kind::Own) => Some(
                "samples cost the program more than their recording shows, so their period was made longer",
            ),
            Some(Kind::Native) => Some(
                "samples of native memory cost the program more than their recording shows, so their period was made longer",
            ),
        }
    }

    pub(crate) const fn native_period(&self) -> u64 {
        self.present.of(Kind::Native)
    }

    /// Counts a sample. Returns whether something more is to be done with it: see [`Pace::look`].
    #[inline(always)]
    pub(crate) const fn count(&mut self, now: Nanos) -> bool {
        self.taken = self.taken.wrapping_add(1);
        self.is_auto && (self.taken.is_multiple_of(TIMED) || now.0 >= self.due)
    }

    /// Counts what a sample of a block of this many bytes stands for, whose sample point was drawn under this period.
    #[inline]
    pub(crate) fn sampled(&mut self, kind: Kind, block: u64, period: u64) {
        self.native = self.native.wrapping_add(kind as u32);
        if self.is_auto {
            let decided = self.decided.of(kind);
            self.trial.sampled(kind, block, decided, period);
        }
    }

    /// Counts a recording of another kind. Returns whether it is to be timed.
    #[inline(always)]
    pub(crate) const fn count_end(&mut self) -> bool {
        self.cost.count_end() && self.is_auto
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) const fn freed(&mut self) {
        self.cost.freed();
    }

    /// Decides, if that is due. Returns the periods if one has changed.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn look(&mut self, now: Nanos, spent: &Spent, is_crowded: bool) -> Option<Periods> {
        if self.taken < self.decide_at && now.0 < self.due {
            return None;
        }
        let seen = Seen {
            now: now.0,
            cpu: clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0),
            file: spent.file.load(Relaxed),
            record: spent.record.nanos(),
            is_crowded,
        };
        let changed = self.decide(seen);
        let idle_from = match self.present == self.shortest {
            true => 0,
            false => now.0 + IDLE_AFTER,
        };
        spent.idle_from.store(idle_from, Relaxed);
        changed
    }

    #[unsafe(link_section = "nthbyte_hot")]
    fn decide(&mut self, seen: Seen) -> Option<Periods> {
        let seconds = seen.now.saturating_sub(self.last.now) as f64 / 1e9;
        let cpu = seen.cpu.saturating_sub(self.last.cpu) as f64;
        let grown = seen.file.saturating_sub(self.last.file) as f64;
        self.file_left -= grown;
        if self.file_left < FILE_SAVED {
            self.file_left = (self.file_left + FILE_RATE * seconds).min(FILE_SAVED);
        }
        self.cost.count(self.taken);
        let measured = self.cost.of_sample(seen.record);
        let costs = self.trial.costs(measured, cpu);
        let taken = [self.taken.saturating_sub(self.native), self.native].map(f64::from);
        // A trial's samples stand for as many more as its period is longer.
        let would = Kind::ALL.map(|kind| {
            let longer = self.present.of(kind) / self.decided.of(kind);
            taken[kind as usize] * longer as f64
        });
        let by_time = self.time(seconds, cpu, measured, taken, costs);
        let by_file = (self.file_left / FILE_TIME / FILE_SAMPLE).max(LEAST_SAMPLES) * seconds;
        let by_time = self.share_out(by_time, would, costs);
        let by_file = self.share_out(by_file, would, [1.0; 2]);
        let crowd = if seen.is_crowded { CROWDED } else { 0.0 };
        let before = self.decided;
        for kind in Kind::ALL {
            let at = kind as usize;
            let allowed = by_time[at].min(by_file[at]);
            let before_this = if seen.is_crowded {
                Tally::NONE
            } else {
                self.lately[at]
            };
            let taken = before_this.and(would[at].max(crowd * allowed), allowed);
            let next = taken.next_period(before.0[at], self.shortest.0[at]);
            self.lately[at] = if next == before.0[at] {
                taken
            } else {
                Tally::NONE
            };
            self.decided.0[at] = next;
        }
        let has_changed = self.decided != before;
        let longer = self.trial.next(cpu, seconds, measured, has_changed);
        self.last = seen;
        (self.taken, self.native) = (0, 0);
        self.decide_at = match longer {
            Some(_) => SAMPLES / LONGER as u32,
            None => SAMPLES,
        };
        self.due = seen.now + DECIDE_AFTER;
        let present = self.decided.with_longer(longer, LONGER);
        (std::mem::replace(&mut self.present, present) != present).then_some(present)
    }

    /// The time that sampling may take, in nanoseconds, where `cpu` is what the process took, and these samples were taken.
    #[unsafe(link_section = "nthbyte_hot")]
    fn time(
        &mut self,
        seconds: f64,
        cpu: f64,
        measured: f64,
        taken: [f64; 2],
        costs: [f64; 2],
    ) -> f64 {
        let share = AIM * cpu;
        let beyond = self.start_left * (cpu / START_TIME).min(1.0);
        let used = taken[0] * costs[0] + taken[1] * costs[1];
        self.start_left = (self.start_left - (used - share).max(0.0)).max(0.0);
        let least = (LEAST_SAMPLES * measured).min(SHARE_OF_PROCESSOR * 1e9) * seconds;
        let working = share.max(least);
        let cold = (SHARE_OF_WAITING * cpu / COLD).max(FEWEST_SAMPLES * seconds) * measured;
        let (waits, works) = WAITS;
        let waiting = ((works - cpu / 1e9 / seconds.max(1e-9)) / (works - waits)).clamp(0.0, 1.0);
        working + (cold.min(working) - working) * waiting + beyond
    }

    /// The samples that each kind may take, if together they may cost `total`, and one of each costs `costs`. Each kind has half
    /// of it, and what the other one leaves. `would`: how many each takes at the decided periods.
    #[unsafe(link_section = "nthbyte_hot")]
    fn share_out(&self, total: f64, would: [f64; 2], costs: [f64; 2]) -> [f64; 2] {
        let used = [0, 1].map(|at| {
            let at_most = self.decided.0[at] / self.shortest.0[at];
            (would[at] * at_most as f64 * costs[at]).min(total / 2.0)
        });
        [0, 1].map(|at| ((total - used[1 - at]) / costs[at]).max(1e-6))
    }

    /// Begins to time a recording. `samples`: how many were recorded before. Returns the time, which is not 0.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn begin_timed(&mut self, samples: u32) -> u64 {
        self.cost.begin_timed(samples)
    }

    /// Ends the timing of a recording that began at `begun`.
    #[cold]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn end_timed(&mut self, kind: Timed, begun: u64, samples: u32) {
        self.cost.end_timed(kind, begun, samples);
    }
}

#[cfg(test)]
mod tests {
    //! The controller: its decisions over time, without a session. The programs and their clocks are simulated.

    mod decisions;
    mod programs;
    mod trials;
}
