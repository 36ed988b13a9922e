//! The near end of the ring: what the allocating thread calls.
//!
//! A [`Recorder`] belongs to whoever holds the interpreter's lock. It never waits (but for
//! [`Distances::Every`], where losing nothing is the point) and never aborts for want of memory:
//! what cannot be recorded is counted as lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CpuSample, End, LostKind, Memory, Nanos, Node, NodeId,
    SampleId, Thread, ThreadId, TypeId, TypeName,
};
use nthbyte_profile::{Distances, Meta};
use rtrb::{Producer, PushError};

use super::clock::Clock;
use super::config::{Config, child_meta, child_path};
use super::drain::Drain;
use super::outcome::Outcome;
use super::record::{Record, Seldom, text};
use super::tree::{MAX_CODES, Tree};
use super::worker::{Attention, Worker};

/// The ring holds what happens in a tenth of a second in which the writer thread does not get to run,
/// if the program allocates 1.3 GB in a second and frees as much: so many bytes' samples and frees.
const RING_BYTES: u64 = 1 << 28;
/// Its least and its greatest number of slots, of 56 bytes. A quarter of it wakes the writer thread.
const RING_SLOTS: (u64, u64) = (2048, 32 << 10);
/// Slots when every allocation is recorded.
const RING_SLOTS_EVERY: usize = 1 << 16;
/// The longest that the writer thread may stay asleep, or absent after a fork, while samples arrive.
const WAKE_AFTER: Nanos = Nanos(250_000_000);

/// Records one session; the session lasts as long as it.
pub struct Recorder {
    clock: Clock,
    meta: Box<Meta>,
    path: std::path::PathBuf,
    ring: Producer<Record>,
    worker: Arc<Worker>,
    tree: Tree,
    codes: u32,
    types: u32,
    threads: u32,
    samples: u32,
    /// Pushed since the writer thread was last woken.
    since_wake: usize,
    woken: Nanos,
    /// Until then a fork keeps the writer thread away.
    absent_until: Nanos,
    generation: u32,
}

impl Recorder {
    /// Opens the profile and starts the writer thread.
    ///
    /// # Errors
    /// One line that says why the file or the thread cannot be had.
    pub fn start(config: &Config, meta: Meta) -> Result<Self, String> {
        let clock = Clock::start();
        let (ring, far_end) = rtrb::RingBuffer::new(slots(&meta));
        let drain = Drain::open(far_end, clock, &config.output, &meta)?;
        let worker = Worker::start(Box::new(drain))?;
        Ok(Self {
            clock,
            meta: Box::new(meta),
            path: config.output.clone(),
            ring,
            worker,
            tree: Tree::default(),
            codes: 0,
            types: 1,
            threads: 0,
            samples: 0,
            since_wake: 0,
            woken: Nanos(0),
            absent_until: Nanos(0),
            generation: 0,
        })
    }

    /// The time since the session's start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The session's time of a raw `CLOCK_MONOTONIC` reading in nanoseconds.
    #[must_use]
    pub const fn at(&self, monotonic_nanos: u64) -> Nanos {
        self.clock.at(monotonic_nanos)
    }

    /// Records that the ring takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.ring.slots()
    }

    /// The session's description.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Samples recorded so far.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// Notices a fork and looks after the writer thread. To be called before each sample; returns a
    /// number that changes when this process has become a child with a profile of its own, in which
    /// every code, node, type, thread and sample has to be defined anew.
    pub fn attend(&mut self, now: Nanos) -> u32 {
        if self.worker.attention() != Attention::None {
            self.after_fork();
        } else if now.0.wrapping_sub(self.woken.0) > WAKE_AFTER.0 {
            self.wake(now);
        }
        self.generation
    }

    /// Defines a code object. `None`: no room, try again with the next sample.
    pub fn code(&mut self, code: &Code<'_>) -> Option<CodeId> {
        if self.codes == MAX_CODES {
            return None;
        }
        self.push(Record::seldom(Seldom::code(code)?)?)?;
        self.codes += 1;
        Some(CodeId(self.codes - 1))
    }

    /// The number of a stack node, which is defined if it is new.
    pub fn node(&mut self, node: Node) -> Option<NodeId> {
        if let Some(known) = self.tree.find(&node) {
            return Some(known);
        }
        self.tree.reserve()?;
        self.push(Record::Node(node))?;
        Some(self.tree.define(&node))
    }

    /// Defines a type.
    pub fn type_name(&mut self, name: &TypeName<'_>) -> Option<TypeId> {
        self.push(Record::seldom(Seldom::Type {
            name: text(name.name)?,
            native: text(name.native)?,
        })?)?;
        self.types += 1;
        Some(TypeId(self.types - 1))
    }

    /// Defines a thread.
    pub fn thread(&mut self, thread: &Thread<'_>) -> Option<ThreadId> {
        self.push(Record::seldom(Seldom::Thread {
            os_id: thread.os_id,
            name: text(thread.name)?,
        })?)?;
        self.threads += 1;
        Some(ThreadId(self.threads - 1))
    }

    /// Renames a thread.
    pub fn thread_name(&mut self, thread: ThreadId, name: &str) -> Option<()> {
        self.push(Record::seldom(Seldom::ThreadName(thread, text(name)?))?)
    }

    /// Tells of a sample that will be recorded when more is known of it: should the process be killed before,
    /// the profile has what is known now. Samples are announced and recorded in the order of their times; one may
    /// be announced again. Whether there was room.
    pub fn announce(&mut self, allocation: Allocation) -> bool {
        // Not worth a lost event: left out while the ring is half full.
        let is_roomy = self.meta.distances() == Distances::Every
            || self.ring.slots() > self.ring.buffer().capacity() / 2;
        is_roomy && self.push(Record::Announced(allocation)).is_some()
    }

    /// Records an allocation sample; counts it as lost if there is no room.
    pub fn allocation(&mut self, allocation: Allocation) -> Option<SampleId> {
        if self.samples == u32::MAX || self.push(Record::Allocation(allocation)).is_none() {
            self.lost(LostKind::Allocations, 1);
            return None;
        }
        self.samples += 1;
        Some(SampleId(self.samples - 1))
    }

    /// Records that a sampled object was freed.
    pub fn freed(&mut self, sample: SampleId, time: Nanos) {
        self.push_or_count(Some(Record::Freed(sample, time)), LostKind::Other);
    }

    /// Records a time sample.
    pub fn cpu(&mut self, sample: CpuSample) {
        self.push_or_count(Some(Record::Cpu(sample)), LostKind::CpuSamples);
    }

    /// Records a collection.
    pub fn collection(&mut self, collection: Collection) {
        self.push_or_count(Record::collection(collection), LostKind::Other);
    }

    /// Records memory totals.
    pub fn memory(&mut self, memory: Memory) {
        self.push_or_count(Record::seldom(Seldom::Memory(memory)), LostKind::Other);
    }

    /// Counts events that could not be recorded.
    pub fn lost(&self, kind: LostKind, events: u64) {
        if events > 0 {
            self.worker.lost[kind as usize].fetch_add(events, Relaxed);
        }
    }

    /// Ends the session: everything recorded is written and the file is closed.
    #[must_use]
    pub fn finish(mut self, allocated: Option<u64>) -> Outcome {
        if self.worker.attention() != Attention::None {
            self.after_fork();
        }
        self.worker.finish(End {
            time: self.clock.now(),
            allocated,
        })
    }

    fn push_or_count(&mut self, record: Option<Record>, kind: LostKind) {
        if record.and_then(|record| self.push(record)).is_none() {
            self.lost(kind, 1);
        }
    }

    fn push(&mut self, mut record: Record) -> Option<()> {
        loop {
            match self.ring.push(record) {
                Ok(()) => break,
                Err(PushError::Full(back)) => {
                    self.wake(self.clock.now());
                    if self.meta.distances() != Distances::Every
                        || self.worker.is_dead()
                        || self.worker.attention() == Attention::Child
                    {
                        return None;
                    }
                    record = back;
                    std::thread::yield_now();
                }
            }
        }
        self.since_wake += 1;
        if self.since_wake >= self.ring.buffer().capacity() / 4 {
            self.wake(self.clock.now());
        }
        Some(())
    }

    #[cold]
    fn wake(&mut self, now: Nanos) {
        match self.worker.attention() {
            Attention::None => {}
            Attention::Parent => self.after_fork(),
            // What is in the ring is the parent's.
            Attention::Child => return,
        }
        self.since_wake = 0;
        self.woken = now;
        if now.0 >= self.absent_until.0 {
            self.worker.wake();
        }
    }

    /// In the parent of a fork, gives the interpreter time to see that it has one thread less before
    /// the writer thread comes back, however much is recorded meanwhile; in the child, begins a profile
    /// of its own.
    #[cold]
    fn after_fork(&mut self) {
        match self.worker.take_attention() {
            Attention::None => {}
            Attention::Parent => {
                self.woken = self.clock.now();
                self.absent_until = Nanos(self.woken.0.saturating_add(WAKE_AFTER.0));
            }
            Attention::Child => {
                let meta = child_meta(&self.meta);
                let (ring, far_end) = rtrb::RingBuffer::new(slots(&meta));
                self.clock = Clock::start();
                let path = child_path(&self.path, meta.pid);
                self.worker
                    .replace(Box::new(Drain::later(far_end, self.clock, path, &meta)));
                self.ring = ring;
                *self.meta = meta;
                self.tree = Tree::default();
                (self.codes, self.types, self.threads, self.samples) = (0, 1, 0, 0);
                (self.since_wake, self.woken, self.absent_until) = (0, Nanos(0), Nanos(0));
                self.generation = self.generation.wrapping_add(1);
            }
        }
    }
}

fn slots(meta: &Meta) -> usize {
    if meta.distances() == Distances::Every {
        return RING_SLOTS_EVERY;
    }
    let (least, most) = RING_SLOTS;
    (RING_BYTES / meta.period().max(1))
        .next_power_of_two()
        .clamp(least, most) as usize
}

/// Lost events of one session, by [`LostKind`]; taken by the writer thread.
pub(super) fn take_lost(worker: &Worker) -> [(LostKind, u64); 3] {
    [LostKind::Allocations, LostKind::CpuSamples, LostKind::Other]
        .map(|kind| (kind, worker.lost[kind as usize].swap(0, Acquire)))
}
