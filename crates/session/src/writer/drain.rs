//! The consumer of the ring: converts records into events of the file.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nthbyte_host::process::HostDescriptor;
use nthbyte_host::{clock, threads};
use nthbyte_profile::activity;
use nthbyte_profile::composition::{self, encode_arenas};
use nthbyte_profile::event::{End, Event, Extension, Memory, Nanos, SourceId};
use nthbyte_profile::holders::HOLDERS;
use nthbyte_profile::pressure::{Alarm, PRESSURE};
use nthbyte_profile::{Composition, MISSING, Meta, Missing, extension};
use rtrb::Consumer;

use super::arenas::Arenas;
use super::file::{Sink, create, describe};
use super::keep::{Kept, first_meta};
use super::pending::{Pending, with_periods};
use super::progress::{LastWords, Progress};
use crate::clock::Clock;
use crate::composition::{ActivityMeter, Composer, ResidentSet};
use crate::config::{Config, Keep};
use crate::keeper::Keeper;
use crate::missing;
use crate::outcome::SessionOutcome;
use crate::output::Output;
use crate::pace::Spent;
use crate::pressure::Watch;
use crate::ring::Record;
use crate::snapshots::due::{self, Schedule};
use crate::snapshots::{self, Flights};

/// A block is written at least this often while there is data, so that a killed process loses less than a second. A
/// session that began a short time ago writes more often, in proportion to its age: the processes of a pool may be
/// killed before they are one second old.
const FLUSH_AFTER: Duration = Duration::from_millis(600);
const FLUSH_AFTER_AT_FIRST: Duration = Duration::from_millis(30);

/// The same while memory is near a limit, because the kernel may kill the process at any moment.
const FLUSH_WHEN_NEAR: Duration = Duration::from_millis(150);

/// In its first second, a process that has less than 64 MiB is not watched: most that end so soon need no limit.
const UNWATCHED: Nanos = Nanos(1_000_000_000);
const SMALL: u64 = 64 << 20;

/// Between two looks at a snapshot that is being taken.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Writing this many pending samples takes a few milliseconds. More than this are not written with each block, but once
/// per flush interval.
const WRITTEN_AT_ONCE: usize = 1 << 16;

pub(crate) struct Drain {
    keeper: &'static dyn Keeper,
    ring: Consumer<Record>,
    clock: Clock,
    sink: Sink,
    path: PathBuf,
    /// With `--keep`, how much is kept, and what divides the file.
    keep: Option<Keep>,
    kept: Option<Box<Kept>>,
    /// Whether the writer thread has the drain. It then takes the file along, when there is one.
    is_on_thread: bool,
    /// The file's descriptor in the program's table, while the thread has taken the file along.
    left_behind: Option<HostDescriptor>,
    pending: Pending,
    /// The period of each source at this point of the ring.
    periods: Vec<u64>,
    resident: ResidentSet,
    activity: ActivityMeter,
    composer: Composer,
    watch: Watch,
    arenas: Arenas,
    snapshots: Flights,
    schedule: Schedule,
    /// After a snapshot: the number of the first piece of the heap whose huge pages may be gone.
    split: Option<u32>,
    /// What the file says of it.
    missing: Missing,
    flushed: Instant,
    dirty: bool,
    counted: Counted,
    /// What was counted up to the end of the last block in the file, and of the one before.
    in_file: [Counted; 2],
    lost: u64,
}

/// Samples of memory and of time.
#[derive(Clone, Copy, Default)]
struct Counted {
    memory: u64,
    time: u64,
}

impl Counted {
    fn all(self) -> u64 {
        self.memory + self.time
    }
}

impl Drain {
    /// A drain that creates its file now.
    pub(crate) fn open(
        keeper: &'static dyn Keeper,
        ring: Consumer<Record>,
        clock: Clock,
        config: &Config,
        meta: &Meta,
    ) -> Result<Self, String> {
        let path = &config.output;
        let open = if config.claimed {
            Output::adopt
        } else {
            Output::create
        };
        let sink = Sink::Open(Box::new(create(
            path,
            &first_meta(meta, config.keep),
            open,
        )?));
        due::set_interval(config.snapshot_every);
        let mut drain = Self::new(keeper, ring, clock, path.clone(), sink, meta, config.keep);
        drain.begin_kept(meta);
        drain.composer.begin(clock.now(), false);
        Ok(drain)
    }

    /// A drain that creates its file with the first record, in place of no other file.
    pub(crate) fn later(
        keeper: &'static dyn Keeper,
        ring: Consumer<Record>,
        clock: Clock,
        path: PathBuf,
        meta: &Meta,
        keep: Option<Keep>,
    ) -> Self {
        let sink = Sink::Later(Box::new(meta.clone()));
        Self::new(keeper, ring, clock, path, sink, meta, keep)
    }

    /// The file is there.
    fn begin_kept(&mut self, meta: &Meta) {
        let keep = self.keep;
        self.kept = keep.map(|keep| Box::new(Kept::new(keep, &self.path, meta)));
    }

    fn new(
        keeper: &'static dyn Keeper,
        ring: Consumer<Record>,
        clock: Clock,
        path: PathBuf,
        sink: Sink,
        meta: &Meta,
        keep: Option<Keep>,
    ) -> Self {
        Self {
            keeper,
            ring,
            clock,
            sink,
            path,
            keep,
            kept: None,
            is_on_thread: false,
            left_behind: None,
            pending: Pending::default(),
            periods: meta.sources.iter().map(|source| source.period).collect(),
            resident: ResidentSet::default(),
            activity: ActivityMeter::default(),
            composer: Composer::default(),
            watch: Watch::default(),
            arenas: Arenas::default(),
            snapshots: Flights::default(),
            schedule: Schedule::new(),
            split: None,
            missing: Missing::default(),
            flushed: Instant::now(),
            dirty: false,
            counted: Counted::default(),
            in_file: [Counted::default(); 2],
            lost: 0,
        }
    }

    /// Called by the writer thread when it has received the drain.
    pub(super) fn enter_thread(&mut self) {
        self.is_on_thread = true;
        self.take_file_along();
        threads::prepare();
    }

    /// Called by the writer thread before it gives the drain back, and ends.
    pub(super) fn leave_thread(&mut self) {
        self.is_on_thread = false;
        self.left_behind = None;
    }

    /// The descriptor in the program's table, if it is not the present file's: with `--keep`, an earlier one.
    pub(super) fn take_stale(&mut self) -> Option<HostDescriptor> {
        let Sink::Open(writer) = &self.sink else {
            return None;
        };
        let known = writer.get_ref().identity();
        self.left_behind.take_if(|left| left.identity != known)
    }

    /// From here on, the program cannot close the file under the thread.
    fn take_file_along(&mut self) {
        if let Sink::Open(writer) = &mut self.sink
            && self.is_on_thread
        {
            self.left_behind = writer.get_mut().take_along();
        }
    }

    /// Takes all records from the ring. Returns whether the flush interval had passed and a block was written.
    pub(super) fn work(&mut self, progress: &Progress) -> bool {
        let was_provisional = self.is_provisional();
        // A system call, which most wakes do not need.
        let began = (self.ring.slots() >= Spent::ENOUGH_RECORDS)
            .then(|| clock::read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0));
        let mut records = 0_usize;
        while let Ok(record) = self.ring.pop() {
            let record = match record {
                Record::Ring(mut next) => {
                    self.ring = next.pop().expect("a ring in each record of one");
                    continue;
                }
                record => record,
            };
            records += 1;
            match &record {
                Record::Provisional(sample) => {
                    let period = self.periods.get(sample.source.index());
                    self.pending
                        .publish(*sample, period.copied().unwrap_or_default());
                }
                Record::Period(source, period) => {
                    if let Some(known) = self.periods.get_mut(source.index()) {
                        *known = *period;
                    }
                }
                Record::Allocation(sample, arena) => {
                    self.arenas.push(*arena);
                    // Other sources record their samples at once, between the pending ones.
                    if sample.source == SourceId::ALLOCATIONS {
                        self.pending.recorded(sample.time);
                    }
                }
                &Record::Renewed { threads } => {
                    if let Some(kept) = &mut self.kept {
                        kept.renewed(threads);
                    }
                }
                _ => {}
            }
            record.for_each_event(|event| self.write(event, progress));
        }
        if let Some(began) = began {
            let now = clock::read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0);
            progress.spent.took(records, now.saturating_sub(began));
        }
        self.record_resident(progress, false);
        let interval = self.flush_interval();
        // A full block has overwritten samples that are still pending, or that belong to the next block.
        let is_overwritten =
            was_provisional && !self.is_provisional() && self.pending.len() <= WRITTEN_AT_ONCE;
        let is_due = is_overwritten || self.flushed.elapsed() >= interval;
        let writes = is_due && self.dirty;
        if is_due {
            self.write_all(progress, interval / 2);
        }
        self.divide(progress);
        if let Sink::Open(writer) = &self.sink {
            let kept = self.kept.as_ref();
            let bytes = kept.map_or_else(|| writer.bytes_written(), |kept| kept.bytes(writer));
            progress.spent.set_file(bytes);
        }
        writes
    }

    /// Begins the next file of several, if that is due.
    fn divide(&mut self, progress: &Progress) {
        let now = self.clock.now();
        let is_due = match (&self.kept, &self.sink) {
            (Some(kept), Sink::Open(writer)) => self.is_on_thread && kept.is_due(now, writer),
            _ => false,
        };
        if !is_due {
            return;
        }
        self.flush(progress);
        let nothing = Sink::Failed(String::new());
        let (kept, writer) = match (&mut self.kept, std::mem::replace(&mut self.sink, nothing)) {
            (Some(kept), Sink::Open(writer)) => (kept, writer),
            (_, sink) => {
                self.sink = sink;
                return;
            }
        };
        match kept.divide(*writer, &self.path, now) {
            Ok((writer, is_new)) => {
                self.sink = Sink::Open(Box::new(writer));
                if is_new {
                    // What the new file does not say yet.
                    self.missing = Missing::default();
                    self.composer.begin_file();
                    self.ended_block();
                }
                // The pending samples are not in it.
                self.pending.overwritten();
            }
            Err(error) => {
                progress.set_dead();
                self.sink = Sink::Failed(describe(&self.path, &error));
            }
        }
    }

    /// Records the resident set size, if the file exists: in the child of a fork it alone is no reason for a file.
    fn record_resident(&mut self, progress: &Progress, is_last: bool) {
        if matches!(self.sink, Sink::Open(_)) {
            let readings = self.resident.readings(self.clock.now(), is_last);
            for memory in readings.into_iter().flatten() {
                self.write(&Event::Memory(memory), progress);
            }
            self.record_missing(progress);
            self.record_activity(is_last, progress);
            self.record_pressure(progress);
            self.record_snapshots(is_last, progress);
            if let Some(rss) = self.resident.last().filter(|_| !is_last) {
                self.schedule.consider(self.clock.now(), rss);
            }
            self.record_composition(readings[2], is_last, progress);
        }
    }

    /// Records the missing events, if there are more than the file says.
    fn record_missing(&mut self, progress: &Progress) {
        let missing = missing::now();
        if missing != self.missing {
            self.write_extension(MISSING, &missing.encode(), progress);
            self.missing = missing;
        }
    }

    /// Records how busy the process is, if that is due.
    fn record_activity(&mut self, is_last: bool, progress: &Progress) {
        if let Some(activity) = self.activity.reading(self.clock.now(), is_last) {
            self.write_extension(activity::ACTIVITY, &activity.encode(0), progress);
        }
    }

    /// Records how near a limit of memory is. At an alarm, the profile goes to the disk: the process may be killed.
    fn record_pressure(&mut self, progress: &Progress) {
        if !self.is_on_thread {
            return;
        }
        let (now, resident) = (self.clock.now(), self.resident.last().unwrap_or(0));
        if now < UNWATCHED && resident < SMALL {
            return;
        }
        let Some(seen) = self.watch.look(now, resident) else {
            return;
        };
        self.write_extension(PRESSURE, &seen.pressure.encode(0), progress);
        if seen.pressure.alarm == Alarm::None {
            return;
        }
        if seen.has_room {
            due::ask_at_any_cost();
        }
        self.write_all(progress, Duration::ZERO);
        if let Sink::Open(writer) = &mut self.sink {
            writer.get_mut().sync();
        }
    }

    /// Records what the resident set is made of, if that is due. Only the writer thread does that.
    fn record_composition(&mut self, reading: Option<Memory>, is_last: bool, progress: &Progress) {
        if !self.is_on_thread {
            return;
        }
        let now = self.clock.now();
        self.composer.begin(now, true);
        if let Some(first) = self.composer.take_first() {
            self.write_composition(&first, progress);
        }
        let due = if is_last {
            self.composer.last(self.keeper, now)
        } else {
            let rss = self.resident.last();
            self.composer.due(self.keeper, now, rss, reading.is_some())
        };
        if let Some(due) = due {
            self.write_composition(&due, progress);
        }
    }

    /// Records the snapshots that are complete: after the samples that they refer to.
    fn record_snapshots(&mut self, is_last: bool, progress: &Progress) {
        let before = snapshots::spent();
        for snapshot in self.snapshots.collect(is_last, || progress.go_on()) {
            self.write_extension(HOLDERS, &snapshot, progress);
        }
        if snapshots::spent() != before {
            self.split = Some(0);
        }
        // What the copy has taken from the program: its huge pages. Not while another one has them, too.
        if let (Some(from), false, true) = (self.split, is_last, self.snapshots.is_empty()) {
            self.split = snapshots::restore(|| self.keeper.restore_huge_pages(from));
        }
    }

    /// How long the thread may rest.
    pub(super) fn rest(&self) -> Duration {
        match self.snapshots.is_empty() {
            true => self.flush_interval().min(self.schedule.rest()),
            false => BETWEEN_LOOKS,
        }
    }

    /// Waits for no snapshot: the process ends.
    pub(super) fn abandon_snapshots(&mut self, progress: &Progress) {
        self.record_snapshots(false, progress);
        self.snapshots.abandon();
    }

    fn write_composition(&mut self, composition: &Composition, progress: &Progress) {
        let bytes = composition.encode(0);
        self.write_extension(composition::COMPOSITION, &bytes, progress);
    }

    /// Takes all records from the ring and writes them, so that the thread can stop.
    pub(super) fn write_out(&mut self, progress: &Progress) {
        self.work(progress);
        self.write_all(progress, Duration::ZERO);
    }

    /// Writes all data so far, and the pending samples if one has been pending for at least `pending_for`. The file
    /// keeps its old end until both are written.
    fn write_all(&mut self, progress: &Progress, pending_for: Duration) {
        if let Sink::Open(writer) = &mut self.sink {
            writer.get_mut().hold();
        }
        self.flush(progress);
        let mut written = self.write_pending(pending_for);
        if let Sink::Open(writer) = &mut self.sink {
            written = written.and(writer.get_mut().release());
        }
        if let Err(error) = written {
            self.fail(&error, progress);
        }
    }

    /// The flush interval: the longest time between a record and the write of its block.
    pub(super) fn flush_interval(&self) -> Duration {
        let age = Duration::from_nanos(self.clock.now().0);
        let longest = match self.watch.is_near() {
            true => FLUSH_WHEN_NEAR,
            false => FLUSH_AFTER,
        };
        (age / 4).clamp(FLUSH_AFTER_AT_FIRST, longest)
    }

    /// Ends the current block, so that all data so far is in the file.
    fn flush(&mut self, progress: &Progress) {
        self.flushed = Instant::now();
        for runs in self.arenas.take().chunks(composition::MOST_RUNS) {
            self.write_extension(composition::ARENAS, &encode_arenas(runs), progress);
        }
        for (kind, events) in progress.lost.take() {
            if events > 0 {
                self.lost += events;
                self.write(&Event::Lost(kind, events), progress);
            }
        }
        if std::mem::take(&mut self.dirty)
            && let Sink::Open(writer) = &mut self.sink
        {
            self.pending.overwritten();
            match writer.flush() {
                Ok(()) => self.ended_block(),
                Err(error) => self.fail(&error, progress),
            }
        }
    }

    fn is_provisional(&self) -> bool {
        matches!(&self.sink, Sink::Open(writer) if writer.get_ref().is_provisional())
    }

    /// Writes the pending samples at the end of the file, if one has been pending for at least `pending_for`.
    fn write_pending(&mut self, pending_for: Duration) -> io::Result<()> {
        let now = self.clock.now().0;
        let since = now.saturating_sub(pending_for.as_nanos() as u64);
        if let Sink::Open(writer) = &mut self.sink
            && let Some(samples) = self.pending.take_changed(Nanos(since))
        {
            let events = with_periods(samples, &self.periods);
            let blocks = match &mut self.kept {
                None => writer.provisional(events)?,
                Some(kept) => {
                    let translate = |event| match event {
                        Event::Allocation(one) => {
                            kept.translated(&one, writer).map(Event::Allocation)
                        }
                        event => Ok(event),
                    };
                    let events = events.map(translate).collect::<io::Result<Vec<_>>>()?;
                    writer.provisional(events)?
                }
            };
            writer.get_mut().write_provisional(&blocks)?;
        }
        Ok(())
    }

    /// Looks at all mappings: a last time, when a signal ends the process.
    pub(super) fn look(&self) {
        self.keeper.look(self.clock.now(), true);
    }

    /// Who does what else there is for the thread.
    pub(super) const fn keeper(&self) -> &'static dyn Keeper {
        self.keeper
    }

    /// The session's time.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Records the pending samples as they are known now, because the host will not record them any more.
    pub(super) fn record_pending(&mut self, progress: &Progress) {
        let pending = self.pending.take_all();
        let periods = self.periods.clone();
        for event in with_periods(pending.iter(), &periods) {
            if matches!(event, Event::Allocation(_)) {
                self.arenas.push(0);
            }
            self.write(&event, progress);
        }
    }

    /// Records what ends the process, if there is a file.
    pub(super) fn ended_by(&mut self, reason: &str, progress: &Progress) {
        if let Sink::Open(writer) = &mut self.sink
            && let Err(error) = writer.ended_by(reason)
        {
            self.fail(&error, progress);
        }
    }

    /// Writes the remaining data and the end. Also returns a descriptor that the program's table still has.
    pub(super) fn finish(
        mut self,
        progress: &Progress,
        end: LastWords,
    ) -> (SessionOutcome, Option<HostDescriptor>) {
        self.work(progress);
        self.record_resident(progress, true);
        let counted = end.counted.and_then(|counted| counted.blocks);
        if let (Some(bytes), Sink::Open(_)) = (counted, &self.sink) {
            self.write_extension(extension::COUNTED, &extension::counted(bytes), progress);
        }
        self.flush(progress);
        let mut outcome = SessionOutcome {
            path: Some(self.path.clone()),
            samples: self.counted.memory,
            time_samples: self.counted.time,
            lost: self.lost,
            bytes_allocated: end.counted.map(|counted| counted.allocated),
            is_stalled: false,
            notes: Vec::new(),
        };
        match std::mem::replace(&mut self.sink, Sink::Failed(String::new())) {
            Sink::Later(_) => return (SessionOutcome::default(), None),
            Sink::Failed(error) => outcome.notes.push(error),
            Sink::Open(writer) => {
                let end = End {
                    time: end.time,
                    allocated: outcome.bytes_allocated,
                };
                if let Err(error) = writer.finish(end) {
                    outcome.notes.push(describe(&self.path, &error));
                }
            }
        }
        outcome.notes.extend(missing::now().clauses());
        (outcome, self.left_behind)
    }

    /// Whether there is enough data, or old enough data, to start a thread for it.
    pub(super) fn is_due(&self) -> bool {
        let taken = self.ring.slots();
        (taken > 0 || self.dirty)
            && (taken > self.ring.buffer().capacity() / 2
                || self.flushed.elapsed() >= self.flush_interval())
    }

    /// Whether there is no file, and no data for one.
    pub(super) fn has_nothing(&self, progress: &Progress) -> bool {
        matches!(self.sink, Sink::Later(_)) && self.ring.slots() == 0 && progress.lost.is_empty()
    }

    fn write_extension(&mut self, kind: u8, bytes: &[u8], progress: &Progress) {
        self.write(&Event::Extension(Extension { kind, bytes }), progress);
    }

    fn write(&mut self, event: &Event<'_>, progress: &Progress) {
        progress.go_on();
        if let Sink::Later(meta) = &self.sink {
            let meta = meta.clone();
            let first = first_meta(&meta, self.keep);
            self.sink = match create(&self.path, &first, Output::create_new) {
                Ok(writer) => {
                    self.path = writer.get_ref().path().to_owned();
                    self.begin_kept(&meta);
                    Sink::Open(Box::new(writer))
                }
                Err(error) => {
                    missing::count(&error);
                    Sink::Failed(error)
                }
            };
            self.take_file_along();
        }
        match &mut self.sink {
            Sink::Open(writer) => {
                self.dirty = true;
                match event {
                    Event::Allocation(_) => self.counted.memory += 1,
                    Event::Cpu(_) => self.counted.time += 1,
                    _ => {}
                }
                let before = writer.bytes_written();
                let written = match &mut self.kept {
                    None => writer.write(event),
                    Some(kept) => kept.write(event, writer),
                };
                match written {
                    Ok(()) if writer.bytes_written() > before => self.ended_block(),
                    Ok(()) => {}
                    Err(error) => self.fail(&error, progress),
                }
            }
            Sink::Failed(_) | Sink::Later(_) => {
                progress.set_dead();
                if matches!(event, Event::Allocation(_) | Event::Cpu(_)) {
                    self.lost += 1;
                }
            }
        }
    }

    fn fail(&mut self, error: &std::io::Error, progress: &Progress) {
        progress.set_dead();
        let when = self.clock.now().0 / 1_000_000_000;
        let after = format!("the profile ends {when} s after its start");
        let failed = Sink::Failed(format!("{}; {after}", describe(&self.path, error)));
        if let Sink::Open(mut writer) = std::mem::replace(&mut self.sink, failed) {
            let reason = match error.kind() {
                io::ErrorKind::StorageFull => "the disk was full".to_owned(),
                _ => format!("writing failed: {error}"),
            };
            let (block, places) = writer.last_words(&format!("{reason}; {after}"));
            // The outcome counts what a reader finds.
            let is_replaced = writer.get_mut().write_last_words(&block, places);
            let left = self.in_file[usize::from(is_replaced)];
            self.lost += self.counted.all() - left.all();
            self.counted = left;
        }
    }

    /// All that was counted is in the file.
    fn ended_block(&mut self) {
        self.in_file = [self.counted, self.in_file[0]];
    }
}
