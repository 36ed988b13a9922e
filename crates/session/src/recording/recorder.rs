//! The producer of the ring.
//!
//! A session has one [`Recorder`]. The thread with the session's lock uses it through a
//! [`Recording`](crate::Recording). The recorder never aborts when memory runs out. It waits only where no event may be
//! lost ([`Distances::Every`]), and only for a limited time. Events that cannot be recorded are counted as lost.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use nthbyte_host::exit;
use nthbyte_host::threads::uncancelled;
use nthbyte_profile::event::{Code, CodeId, LabelSetId, LostKind, Nanos, Node, SourceId};
use nthbyte_profile::meta::Unit;
use nthbyte_profile::{Distances, MAGIC, Meta};

use super::interner::{Interner, Kept, KnownThread, Naming, OTHER};
use crate::clock::Clock;
use crate::config::{Config, Keep, child_meta, child_path};
use crate::fork_state::ToDo;
use crate::outcome::{Counted, SessionOutcome};
use crate::pace::{Kind, Pace, Periods, Timed};
use crate::ring::{Bulky, Record, Ring, text};
use crate::session_state::SessionState;
use crate::writer::{Drain, LastWords, Writer};

/// After this time without a wake, the writer thread is started again if it does not run, and the ring may become short. A thread
/// that runs wakes by itself as often.
const WAKE_AFTER: Nanos = Nanos(250_000_000);
/// The note of a profile in which values of a label have no name.
const TOO_MANY_VALUES: &str =
    "a label has more than 1,000 values; the others are together, as (other)";
/// Up to this many new nodes enter the ring one by one, which needs no memory; more enter in one record.
const FEW_NODES: usize = 16;

/// How many times a thread checks a full ring before it starts to sleep between the checks.
const YIELDS: u32 = 1000;
pub(crate) const NAP: Duration = Duration::from_micros(200);

pub(crate) struct Recorder {
    slot: &'static SessionState,
    clock: Clock,
    meta: Box<Meta>,
    path: PathBuf,
    /// How much is kept of the profile, and of forked children's.
    keep: Option<Keep>,
    ring: Ring,
    writer: Writer,
    pub(crate) interner: Interner,
    pub(crate) pace: Pace,
    /// The last period of each source in the ring.
    periods: Vec<u64>,
    /// A bit for each source of native memory.
    native_sources: u64,
    samples: u32,
    time_samples: u64,
    woken: Nanos,
    /// A wait for room has timed out. No thread waits again until the writer thread has made progress.
    is_stuck: bool,
}

impl Recorder {
    /// Opens the profile and starts the writer thread.
    ///
    /// # Errors
    /// One line that says why the file could not be opened or the thread could not be started.
    pub(crate) fn start(
        slot: &'static SessionState,
        config: &Config,
        meta: Meta,
    ) -> Result<Self, String> {
        if std::fs::metadata(&config.output).is_ok_and(|file| file.len() > MAGIC.len() as u64) {
            // An earlier profile, which is to be replaced. It stays if the session cannot begin.
            Writer::try_thread()?;
        }
        let clock = Clock::start();
        let (ring, far_end) = Ring::new(&meta, config.auto);
        let drain = Drain::open(slot.keeper(), far_end, clock, config, &meta)?;
        let writer = Writer::start(
            &slot.lost,
            &slot.spent,
            &slot.sleeper,
            &slot.is_abandoned,
            Box::new(drain),
        )?;
        let path = config.output.clone();
        let pace = Pace::new(config.auto, meta.period());
        let mut recorder = Self::new(slot, clock, meta, path, ring, writer, pace);
        recorder.keep = config.keep;
        Ok(recorder)
    }

    fn new(
        slot: &'static SessionState,
        clock: Clock,
        meta: Meta,
        path: PathBuf,
        ring: Ring,
        writer: Writer,
        pace: Pace,
    ) -> Self {
        slot.set_start(clock);
        Self {
            slot,
            clock,
            pace,
            periods: meta.sources.iter().map(|source| source.period).collect(),
            native_sources: Kind::native_sources(&meta),
            meta: Box::new(meta),
            path,
            keep: None,
            ring,
            writer,
            interner: Interner::begin(),
            samples: 0,
            time_samples: 0,
            woken: Nanos(0),
            is_stuck: false,
        }
    }

    /// The recorder of a forked child that continues this session. Its first event creates its file; the first write
    /// starts its writer thread.
    fn of_child(&self) -> Self {
        let meta = child_meta(&self.meta, &self.periods);
        self.slot.spent.reset();
        let (ring, far_end) = Ring::new(&meta, self.pace.is_auto());
        let clock = Clock::start();
        let path = child_path(&self.path, &self.meta, meta.pid);
        let drain = Drain::later(
            self.slot.keeper(),
            far_end,
            clock,
            path.clone(),
            &meta,
            self.keep,
        );
        let writer = self.writer.of_child(Box::new(drain));
        let pace = self.pace.of_child();
        if pace.is_auto() {
            // Others may have been in force, for a trial.
            self.slot.keeper().set_native_period(pace.native_period());
        }
        let mut child = Self::new(self.slot, clock, meta, path, ring, writer, pace);
        child.keep = self.keep;
        child
    }

    /// Handles a fork, removes keys that may belong to other objects now, and starts the writer thread again if needed.
    /// Returns the time.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Nanos {
        let now = self.clock.now();
        if !self.slot.fork.is_undisturbed() || self.slot.must_forget_keys() {
            return self.begin_after_fork();
        }
        if now.0.wrapping_sub(self.woken.0) > WAKE_AFTER.0 {
            self.after_rest(now);
        }
        now
    }

    #[cold]
    #[inline(never)]
    fn begin_after_fork(&mut self) -> Nanos {
        let to_do = self
            .slot
            .fork
            .notice(nthbyte_host::clock::monotonic_nanos());
        if let ToDo::BeginAnew { is_whole } = to_do {
            let child = self.of_child();
            if is_whole {
                std::mem::replace(self, child).writer.leave_to_parent();
            } else {
                // Another thread may have been changing this data. It can be neither used nor dropped.
                std::mem::forget(std::mem::replace(self, child));
            }
            self.slot.keeper().begin_in_child();
        }
        if self.slot.take_must_forget_keys() {
            self.interner.forget_keys();
            if self.keep.is_some() && self.interner.is_full() {
                self.forget_definitions();
            }
        }
        let now = self.clock.now();
        // In a child, and after the time without the thread, at once: the process may rest after this, until a signal
        // ends it.
        if to_do != ToDo::Nothing || now.0.wrapping_sub(self.woken.0) > WAKE_AFTER.0 {
            self.wake(now);
        }
        now
    }

    /// Defines names anew from now on: see [`Interner::begin_anew`].
    fn forget_definitions(&mut self) {
        let threads = self.interner.is_full_of_threads();
        // Without room, there is none for new definitions either: the next of them asks again.
        if self.push(Record::Renewed { threads }).is_some() {
            self.slot.take_must_forget_keys();
            self.interner.begin_anew();
        }
    }

    pub(crate) const fn slot(&self) -> &'static SessionState {
        self.slot
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) const fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(crate) const fn samples(&self) -> u32 {
        self.samples
    }

    /// The path of the profile.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn time_samples(&self) -> u64 {
        self.time_samples
    }

    pub(crate) const fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Number of free slots in the ring.
    pub(crate) fn room(&self) -> usize {
        self.ring.room()
    }

    /// Whether the ring has room for a record that must not displace other events.
    pub(crate) fn is_roomy(&self) -> bool {
        self.waits() || self.ring.is_roomy()
    }

    /// Whether a thread waits when the ring is full.
    fn waits(&self) -> bool {
        self.meta.distances() == Distances::Every
    }

    /// Adds the definition of a code object. The caller has checked that there is room. `None` if there is no memory.
    pub(crate) fn define_code(&mut self, code: &Code<'_>) -> Option<CodeId> {
        self.interner.functions.reserve()?;
        self.interner.reserve_bulky()?;
        self.interner.new_bulky.push(Bulky::code(code)?);
        Some(self.interner.functions.define())
    }

    /// Adds the definition of a type.
    pub(crate) fn define_type(
        &mut self,
        name: &str,
        native: &str,
    ) -> Option<nthbyte_profile::event::TypeId> {
        self.interner.types.reserve()?;
        self.interner.reserve_bulky()?;
        self.interner.new_bulky.push(Bulky::Type {
            name: text(name)?,
            native: text(native)?,
        });
        Some(self.interner.types.define())
    }

    /// The number of a label set. A new one is defined first; of too many values of a key, the others have one name
    /// (`interner/labels.rs`). `None` if there is no room.
    pub(crate) fn label(
        &mut self,
        parent: LabelSetId,
        key: &'static str,
        value: &str,
    ) -> Option<LabelSetId> {
        let mut label = (parent, key, text(value)?);
        if let Some(known) = self.interner.labels.get(&label) {
            return Some(known);
        }
        let kept = self.interner.labels.keep(key, value)?;
        if kept != Kept::Named {
            label.2 = text(OTHER)?;
            if let Some(known) = self.interner.labels.get(&label) {
                return Some(known);
            }
        }
        self.interner.labels.reserve()?;
        self.interner.reserve_bulky()?;
        let value = text(&label.2)?;
        let definition = Bulky::Label { parent, key, value };
        self.interner.new_bulky.push(definition);
        if kept == Kept::FirstOther {
            self.push_or_count(Record::bulky(Bulky::Note(TOO_MANY_VALUES)), LostKind::Other);
        }
        Some(self.interner.labels.define(label))
    }

    /// Adds the definition of a thread.
    pub(crate) fn define_thread(&mut self, os_id: u64) -> Option<KnownThread> {
        self.interner.threads.reserve()?;
        self.interner.reserve_bulky()?;
        let is_main = os_id == u64::from(std::process::id());
        let (name, naming) = match is_main {
            true => ("MainThread", Naming::Host),
            false => ("", Naming::Unnamed),
        };
        let name = text(name)?;
        self.interner.new_bulky.push(Bulky::Thread { os_id, name });
        Some(self.interner.threads.define(os_id, naming))
    }

    /// Counts the recording of a sample. Returns when its timing began; 0 if it is not timed.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: Nanos) -> u64 {
        if self.pace.count(now) {
            return self.look(now);
        }
        0
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn look(&mut self, now: Nanos) -> u64 {
        self.decide(now);
        self.pace.begin_timed(self.samples)
    }

    /// Decides about the periods, if that is due.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn decide(&mut self, now: Nanos) {
        let is_crowded = self.ring.is_crowded();
        if let Some(periods) = self.pace.look(now, &self.slot.spent, is_crowded) {
            self.change_periods(periods);
        }
        if let Some(note) = self.pace.take_note() {
            self.push_or_count(Record::bulky(Bulky::Note(note)), LostKind::Other);
        }
    }

    /// Ends the timing of a recording.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn end_timed(&mut self, kind: Timed, begun: u64) {
        self.pace.end_timed(kind, begun, self.samples);
    }

    /// Sets the periods of all sources of allocations. A longer period is in the file from here on, even if no sample is taken
    /// under it: it says what may have been missed. Hosts still record samples of the period before. A shorter one is in the
    /// file with the first sample that was drawn under it: until then, the host may not have it.
    #[unsafe(link_section = "nthbyte_hot")]
    fn change_periods(&mut self, periods: Periods) {
        self.slot
            .keeper()
            .set_native_period(periods.of(Kind::Native));
        for at in 0..self.meta.sources.len() {
            let source = &self.meta.sources[at];
            if source.unit() != Some(Unit::Bytes) {
                continue;
            }
            let period = periods.of(self.kind(at));
            if self.periods.get(at).is_some_and(|&known| known < period) {
                // Without room, the next sample of the source says it.
                let _ = self.set_period(SourceId(at as u16), period);
            }
        }
    }

    /// Makes the samples of this source that follow in the ring samples of this period. `None` if there is no room.
    #[inline(always)]
    pub(crate) fn set_period(&mut self, source: SourceId, period: u64) -> Option<()> {
        match self.periods.get(source.index()) {
            Some(&known) if known == period => Some(()),
            _ => self.say_period(source, period),
        }
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn say_period(&mut self, source: SourceId, period: u64) -> Option<()> {
        let at = source.index();
        self.periods.get(at)?;
        self.push(Record::Period(source, period))?;
        self.periods[at] = period;
        Some(())
    }

    #[inline]
    pub(crate) fn sampled(&mut self, source: SourceId, block: u64, period: u64) {
        self.pace.sampled(self.kind(source.index()), block, period);
    }

    #[inline]
    fn kind(&self, source: usize) -> Kind {
        match self.native_sources >> source.min(63) & 1 {
            0 => Kind::Own,
            _ => Kind::Native,
        }
    }

    /// The number of the last pushed sample.
    pub(crate) fn count_sample(&mut self) -> u32 {
        self.samples += 1;
        self.samples - 1
    }

    pub(crate) const fn count_time_sample(&mut self) {
        self.time_samples += 1;
    }

    /// Pushes an event, or counts it as lost if there is no room.
    #[inline(always)]
    pub(crate) fn push_or_count(&mut self, record: Option<Record>, kind: LostKind) {
        if record.and_then(|record| self.push(record)).is_none() {
            self.slot.lost.add(kind, 1);
        }
    }

    /// Pushes the new definitions that the event may refer to, then the event.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: Record) -> Option<()> {
        if !(self.interner.new_bulky.is_empty() && self.interner.new_nodes.is_empty()) {
            self.push_definitions()?;
        }
        self.push_one(record).ok()
    }

    /// Pushes new definitions. Those without room stay in their list.
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn push_definitions(&mut self) -> Option<()> {
        if self.keep.is_some() && self.interner.is_full() {
            // The next recording begins anew: this one may have numbers that it needs.
            self.slot.must_forget_keys.store(true, Release);
        }
        if !self.interner.new_bulky.is_empty() {
            let definitions = std::mem::take(&mut self.interner.new_bulky);
            if let Err(Record::Bulky(back)) = self.push_one(Record::Bulky(definitions)) {
                self.interner.new_bulky = back;
                return None;
            }
        }
        let count = self.interner.new_nodes.len();
        if count <= FEW_NODES && self.ring.room() >= count {
            let mut nodes = std::mem::take(&mut self.interner.new_nodes);
            for node in nodes.drain(..) {
                // The room was checked above, and this thread is the only producer.
                let _ = self.push_one(Record::Node(node));
            }
            self.interner.new_nodes = nodes;
            return Some(());
        }
        let nodes: Vec<Node> = std::mem::take(&mut self.interner.new_nodes);
        match self.push_one(Record::Nodes(nodes)) {
            Err(Record::Nodes(back)) => {
                self.interner.new_nodes = back;
                None
            }
            _ => Some(()),
        }
    }

    /// Returns the record if there is no room.
    #[inline(always)]
    fn push_one(&mut self, record: Record) -> Result<(), Record> {
        match self.ring.push(record) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.is_stuck = false;
                self.wake(self.clock.now());
                Ok(())
            }
            Err(back) => self.push_when_free(back),
        }
    }

    /// Called when the ring is full. If no event may be lost, waits for room, at most as long as
    /// [`Writer::longest_wait`] says.
    #[cold]
    #[inline(never)]
    fn push_when_free(&mut self, mut record: Record) -> Result<(), Record> {
        self.wake(self.clock.now());
        if !self.waits() || self.is_stuck {
            return Err(record);
        }
        let until = Instant::now() + self.writer.longest_wait();
        let mut looks = 0;
        while !self.writer.is_dead() && !self.slot.fork.is_child() {
            match self.ring.push(record) {
                Ok(_) => return Ok(()),
                Err(back) => record = back,
            }
            if Instant::now() >= until {
                self.is_stuck = true;
                break;
            }
            self.wake(self.clock.now());
            looks += 1;
            if looks < YIELDS {
                std::thread::yield_now();
            } else {
                uncancelled(|| std::thread::sleep(NAP));
            }
        }
        Err(record)
    }

    /// Wakes the writer thread, or starts it again, unless a fork forbids that at the moment.
    #[cold]
    pub(crate) fn wake(&mut self, now: Nanos) {
        self.see_to_writer(now, Writer::wake);
    }

    /// Starts the writer thread again if it does not run, unless a fork forbids that at the moment. One that sleeps is left
    /// alone: to wake it takes a system call, and interrupts another processor.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn after_rest(&mut self, now: Nanos) {
        self.see_to_writer(now, Writer::restart);
    }

    #[inline(always)]
    fn see_to_writer(&mut self, now: Nanos, what: fn(&mut Writer)) {
        let is_after_rest = now.0.wrapping_sub(self.woken.0) > WAKE_AFTER.0;
        self.ring.wakes(self.writer.is_running(), is_after_rest);
        self.woken = now;
        if self
            .slot
            .fork
            .lets_writer_run(nthbyte_host::clock::monotonic_nanos())
        {
            what(&mut self.writer);
        } else {
            self.writer.stay_away();
        }
    }

    /// Whether a wait for room makes sense: the writer thread runs, and works. The thread is woken.
    pub(crate) fn may_wait(&mut self) -> bool {
        self.wake(self.clock.now());
        !self.is_stuck && self.writer.is_running() && !self.writer.is_dead()
    }

    /// The longest wait for room without progress.
    pub(crate) const fn longest_wait(&self) -> Duration {
        self.writer.longest_wait()
    }

    /// Called when a wait for room has timed out.
    pub(crate) const fn has_waited(&mut self) {
        self.is_stuck = true;
    }

    /// Writes everything recorded and closes the file.
    pub(crate) fn finish(self, counted: Option<Counted>) -> SessionOutcome {
        let end = LastWords {
            time: self.clock.now(),
            counted,
        };
        let unfinished = SessionOutcome {
            path: Some(self.path.clone()),
            samples: self.samples.into(),
            time_samples: 0,
            lost: 0,
            bytes_allocated: counted.map(|counted| counted.allocated),
            is_stalled: false,
            notes: Vec::new(),
        };
        if !exit::has_begun() {
            return self.writer.finish(end, unfinished);
        }
        // The rest may be half changed by the recording that was interrupted.
        let own = ManuallyDrop::new(self);
        // SAFETY: the writer is read once, and the recorder is neither used nor dropped after that.
        let writer = unsafe { std::ptr::read(&raw const own.writer) };
        writer.finish(end, unfinished)
    }
}
