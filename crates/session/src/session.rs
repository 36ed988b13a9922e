//! What hosts hold: a [`Session`], and a [`Recording`] while they record.
//!
//! # One lock
//!
//! Any thread may record, with or without an interpreter's lock. It takes the session's lock, writes its events, and
//! lets go. The file needs *one* order of events, with definitions before uses and numbers without gaps. A ring for
//! each thread would have to be merged into such an order later, with interners of its own or one that is locked
//! all the same. A lock costs less, for it is rarely contended:
//!
//! - a program that allocates 1 GB/s, at the default period of 512 KiB, takes 2,000 samples a second and as many
//!   ends of samples; each holds the lock for 0.5 µs or less, the walk of the stack included: 2 ms of each second,
//!   so that another thread meets a taken lock once in 500 times, and then waits for 0.25 µs on average;
//! - time samples of 16 threads at 1,000 Hz add 16,000 records of 0.2 µs each: 3 ms;
//! - uncontended, the lock is one compare-and-exchange and one store: 5 to 10 ns of a sample of 300 ns and more.
//!
//! The ring to the writer thread has one producer, the thread that has the lock, and one consumer.
//!
//! A thread that cannot have the lock for 3 ms, because the owner has lost its processor, goes on without
//! recording. So does one that has the lock itself: a signal handler, or an allocation of the recorder's own in a host
//! that samples `malloc`. Each such event is counted as lost.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use nthbyte_profile::Meta;
use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CpuSample, LostKind, Memory, Nanos, Node, NodeId,
    SampleId, ThreadId, TypeId, TypeName,
};

use crate::config::Config;
use crate::guard;
use crate::interner::{Appearance, Epoch, KnownType};
use crate::outcome::{INTERNAL_ERROR, Outcome};
use crate::record::{Bulky, Record, text};
use crate::recorder::Recorder;
use crate::registry::{self, Slot, Status};
use crate::writer::LONGEST_WAIT;
use crate::{fork, ticks};

/// One profiling run of this process. It ends when it is dropped, if it was not [finished](Session::finish) before.
#[derive(Debug)]
pub struct Session {
    slot: &'static Slot,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Slot")
    }
}

impl Session {
    /// Opens the profile and starts the writer thread.
    ///
    /// # Errors
    /// One line that says why the file or the thread cannot be had.
    pub fn start(config: &Config, meta: Meta) -> Result<Self, String> {
        fork::watch();
        let session = Self {
            slot: registry::claim(),
        };
        let slot = session.slot;
        slot.reset();
        let recorder = Recorder::start(slot, config, meta)?;
        if !slot.lock.acquire() {
            return Err("an earlier session has not ended".to_owned());
        }
        // SAFETY: the lock was acquired; the borrow ends here.
        unsafe { *slot.recorder() = Some(recorder) };
        guard::reset();
        slot.set_status(Status::Running);
        slot.lock.release();
        Ok(session)
    }

    /// Begins to record, in whatever thread. `None` if that is not possible now; then one event of the given kind is
    /// counted as lost, for which the recording was wanted. Or the session has ended.
    ///
    /// Costs about 30 ns, most of it the reading of the clock. It is meant to last for a microsecond: no
    /// other thread records meanwhile, and the caller must not run the program's code.
    #[inline(always)]
    pub fn record(&self, wanted_for: LostKind) -> Option<Recording<'_>> {
        if !self.slot.lock.acquire() {
            self.lost(wanted_for, 1);
            return None;
        }
        self.begin_with_lock()
    }

    #[inline(always)]
    fn begin_with_lock(&self) -> Option<Recording<'_>> {
        if self.slot.is_running()
            // SAFETY: the lock was acquired, and is released when the recording is dropped.
            && let Some(recorder) = unsafe { self.slot.recorder() }
        {
            let mut recording = Recording {
                recorder,
                now: Nanos(0),
                not_send: PhantomData,
            };
            recording.now = recording.recorder.begin();
            return Some(recording);
        }
        self.slot.lock.release();
        None
    }

    /// The time since the session's start, without the lock. In the child of a fork, the parent's until something was
    /// recorded.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.slot.clock().now()
    }

    /// Counts events that could not be recorded. Safe at any time, in a signal handler too.
    pub fn lost(&self, kind: LostKind, events: u64) {
        self.slot.lost.add(kind, events);
    }

    /// Forgets a function, whose object is about to be freed: its key may soon be that of another one. Whether the host has to
    /// forget what it derived from it: it was known, or that cannot be found out now.
    ///
    /// If the lock cannot be had now, the next recording forgets all keys before it does anything else. Functions that are
    /// used after that are defined once more.
    pub fn forget_function(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.functions.forget(key))
    }

    /// Forgets a type, as [`Session::forget_function`] does a function.
    pub fn forget_type(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.types.forget(key))
    }

    fn forget(&self, forget: impl FnOnce(&mut Recorder) -> bool) -> bool {
        if !self.slot.lock.acquire() {
            self.slot.must_forget_keys.store(true, Release);
            return true;
        }
        // In a child whose parent was interrupted in the middle of a recording, nothing of it is used.
        let is_usable = self.slot.is_running() && !self.slot.fork.is_child();
        // SAFETY: the lock was acquired, and is released below.
        let was_known = match unsafe { self.slot.recorder() } {
            Some(recorder) if is_usable => forget(recorder),
            _ => true,
        };
        self.slot.lock.release();
        was_known
    }

    /// Ends the session: everything recorded is written and the file is closed. Nothing is recorded from then on.
    /// `allocated` is what this process allocated meanwhile, in bytes.
    ///
    /// Waits for the writer thread as long as it goes on writing; when it has not for
    /// some seconds, the profile stays without its end.
    pub fn finish(&self, allocated: Option<u64>) -> Outcome {
        let Some(recorder) = self.take_recorder() else {
            return Outcome::default();
        };
        let failed = self.slot.has_failed();
        self.slot.set_status(Status::Finished);
        let mut outcome = recorder.finish(allocated);
        if failed && outcome.path.is_some() {
            outcome.notes.push(INTERNAL_ERROR.to_owned());
        }
        outcome
    }

    /// Takes the recorder out, which ends all recording. `None` if the session has ended, or the calling thread is
    /// inside of a recording.
    fn take_recorder(&self) -> Option<Recorder> {
        let slot = self.slot;
        let until = Instant::now() + LONGEST_WAIT;
        while !slot.lock.acquire() {
            if slot.lock.is_held_by_caller() || Instant::now() >= until {
                return None;
            }
        }
        // SAFETY: the lock was acquired, and is released below.
        let place = unsafe { slot.recorder() };
        if let Some(recorder) = place {
            // In the child of a fork: what was recorded is the parent's to finish.
            recorder.begin();
        }
        let recorder = place.take();
        slot.lock.release();
        recorder
    }

    /// Changes what the writer waits for and has, between two recordings.
    #[cfg(test)]
    pub(crate) fn with_writer(&self, change: impl FnOnce(&mut crate::writer::Writer)) {
        change(self.record(LostKind::Other).unwrap().recorder.writer());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.finish(None);
        self.slot.give_back();
    }
}

/// The right to record, of one thread, for a moment. The only way to record.
///
/// What has no room is counted as lost. Definitions answer `None` then: the sample that needs them is to be counted as
/// lost by the host, and they are to be asked for again with the next one.
pub struct Recording<'session> {
    recorder: &'session mut Recorder,
    now: Nanos,
    /// The lock is this thread's.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Recording<'_> {
    #[inline]
    fn drop(&mut self) {
        self.recorder.slot().lock.release();
    }
}

impl Recording<'_> {
    /// The session's time when the recording began.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// The session's time of a raw `CLOCK_MONOTONIC` reading in nanoseconds.
    #[must_use]
    pub const fn at(&self, monotonic_nanos: u64) -> Nanos {
        self.recorder.clock().at(monotonic_nanos)
    }

    /// What all numbers that are given out belong to. State that a host keeps of them is a [`PerEpoch`](crate::PerEpoch).
    #[inline]
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.recorder.interner.epoch
    }

    /// The profile's description.
    #[must_use]
    pub const fn meta(&self) -> &Meta {
        self.recorder.meta()
    }

    /// Samples recorded so far.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.recorder.samples()
    }

    /// Events that the ring takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.recorder.room()
    }

    /// How frames of a function appear, if that is known.
    #[inline]
    #[must_use]
    pub fn function(&self, key: u64) -> Option<Appearance> {
        self.recorder.interner.functions.get(key)
    }

    /// Defines a function, whose frames appear as `appearance` says: [`Appearance::Frame`] or
    /// [`Appearance::FrameWithin`]. `None` if there is no room.
    pub fn define_function(
        &mut self,
        key: u64,
        code: &Code<'_>,
        appearance: fn(CodeId) -> Appearance,
    ) -> Option<Appearance> {
        let appearance = appearance(self.recorder.define_code(code)?);
        self.recorder.interner.functions.insert(key, appearance);
        Some(appearance)
    }

    /// From now on frames of a function are [hidden](Appearance::Hidden).
    pub fn hide_function(&mut self, key: u64) -> Option<Appearance> {
        let functions = &mut self.recorder.interner.functions;
        functions.reserve()?;
        functions.insert(key, Appearance::Hidden);
        Some(Appearance::Hidden)
    }

    /// The number of what is known by its name alone: a note in place of frames, or work of the collector. It is defined
    /// if it is new.
    pub fn named_function(&mut self, name: &'static str) -> Option<CodeId> {
        if let Some(known) = self.recorder.interner.functions.named(name) {
            return Some(known);
        }
        let id = self.code(&Code {
            name,
            file: "",
            first_line: 0,
            lines: nthbyte_profile::event::Lines::Direct,
        })?;
        self.recorder.interner.functions.insert_named(name, id);
        Some(id)
    }

    /// Defines a code object that the host itself knows again.
    pub fn code(&mut self, code: &Code<'_>) -> Option<CodeId> {
        self.recorder.define_code(code)
    }

    /// The number of a stack node, which is defined if it is new.
    #[inline]
    pub fn node(&mut self, node: Node) -> Option<NodeId> {
        self.recorder.interner.node(node)
    }

    /// A type, if it is known.
    #[inline]
    #[must_use]
    pub fn known_type(&self, key: u64) -> Option<KnownType> {
        self.recorder.interner.types.get(key)
    }

    /// Defines a type. `detail` is the host's own.
    pub fn define_type(&mut self, key: u64, name: &TypeName<'_>, detail: u32) -> Option<KnownType> {
        let id = self.recorder.define_type(name.name, name.native)?;
        let known = KnownType { id, detail };
        self.recorder.interner.types.insert(key, known);
        Some(known)
    }

    /// The number of a type that is known by its name alone; it is defined if it is new.
    #[inline]
    pub fn named_type(&mut self, name: &'static str) -> Option<TypeId> {
        if let Some(known) = self.recorder.interner.types.named(name) {
            return Some(known);
        }
        let id = self.recorder.define_type(name, "")?;
        self.recorder.interner.types.insert_named(name, id);
        Some(id)
    }

    /// A thread, by the operating system's number; it is defined if it is new.
    #[inline]
    pub fn thread(&mut self, os_id: u64) -> Option<ThreadId> {
        if let Some(known) = self.recorder.interner.threads.last(os_id) {
            return Some(known.id);
        }
        self.other_thread(os_id, None)
    }

    /// A thread, as [`Recording::thread`]. Unless it is the main thread, `name` is called once, for the thread's name.
    #[inline]
    pub fn thread_named_by(
        &mut self,
        os_id: u64,
        name: &mut dyn FnMut() -> Option<String>,
    ) -> Option<ThreadId> {
        match self.recorder.interner.threads.last(os_id) {
            Some(known) if known.is_named => Some(known.id),
            _ => self.other_thread(os_id, Some(name)),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_thread(
        &mut self,
        os_id: u64,
        name: Option<&mut dyn FnMut() -> Option<String>>,
    ) -> Option<ThreadId> {
        let known = match self.recorder.interner.threads.get(os_id) {
            Some(known) => known,
            None => self.recorder.define_thread(os_id)?,
        };
        if let Some(name) = name
            && !known.is_named
        {
            self.recorder.interner.threads.set_named(os_id);
            if let Some(name) = name() {
                self.rename(known.id, &name);
            }
        }
        self.recorder.interner.threads.set_last(os_id);
        Some(known.id)
    }

    /// Gives a thread another name, if it was defined.
    pub fn rename_thread(&mut self, os_id: u64, name: &str) {
        if let Some(known) = self.recorder.interner.threads.get(os_id) {
            self.rename(known.id, name);
        }
    }

    fn rename(&mut self, thread: ThreadId, name: &str) {
        let record = text(name).and_then(|name| Record::bulky(Bulky::ThreadName(thread, name)));
        // Without room for it, the thread is known by its number.
        record.and_then(|record| self.recorder.push(record));
    }

    /// Publishes a sample provisionally, which will be recorded when more is known of it: if the process is killed
    /// before, the profile has what is known now. Samples are published and recorded in the order of their times; one may
    /// be published again. Whether there was room.
    pub fn publish_provisionally(&mut self, allocation: Allocation) -> bool {
        // Not worth a lost event: left out while the ring is half full.
        self.recorder.is_roomy()
            && self
                .recorder
                .push(Record::Provisional(allocation))
                .is_some()
    }

    /// Records an allocation sample; counts it as lost if there is no room.
    #[inline]
    pub fn allocation(&mut self, allocation: Allocation) -> Option<SampleId> {
        if self.recorder.samples() == u32::MAX
            || self.recorder.push(Record::Allocation(allocation)).is_none()
        {
            self.lost(LostKind::Allocations, 1);
            return None;
        }
        Some(SampleId(self.recorder.count_sample()))
    }

    /// Records that a sampled object was freed.
    #[inline(always)]
    pub fn freed(&mut self, sample: SampleId, time: Nanos) {
        self.recorder
            .push_or_count(Some(Record::Freed(sample, time)), LostKind::Other);
    }

    /// Records a time sample.
    pub fn cpu(&mut self, sample: CpuSample) {
        self.recorder
            .push_or_count(Some(Record::Cpu(sample)), LostKind::CpuSamples);
    }

    /// Records a collection.
    pub fn collection(&mut self, collection: Collection) {
        self.recorder
            .push_or_count(Record::collection(collection), LostKind::Other);
    }

    /// Records memory totals.
    pub fn memory(&mut self, memory: Memory) {
        self.recorder
            .push_or_count(Record::bulky(Bulky::Memory(memory)), LostKind::Other);
    }

    /// Counts events that could not be recorded.
    pub fn lost(&self, kind: LostKind, events: u64) {
        self.recorder.slot().lost.add(kind, events);
    }

    /// Records the time samples whose ticks have come since the last call. See [`ticks`].
    pub fn ticks(&mut self, stack: impl FnMut(&mut Self, &ticks::Tick<'_>) -> Option<NodeId>) {
        ticks::TICKS.record(self, stack);
    }
}
