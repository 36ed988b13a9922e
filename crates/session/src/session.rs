//! The types that hosts use: a [`Session`], and a [`Recording`] for the time of one recording.
//!
//! # One lock
//!
//! Any thread may record, with or without an interpreter's lock. It takes the session's lock, writes its events, and
//! releases the lock. The file needs *one* order of events, with definitions before uses and numbers without gaps. With
//! one ring per thread, a later step would have to merge the rings into such an order, with one interner per thread or
//! a locked one. A single lock costs less, because contention is rare:
//!
//! - A program that allocates 1 GB/s at the default period of 512 KiB takes 2,000 samples per second and frees as many
//!   sampled blocks. Each event holds the lock for 0.5 µs or less, including the stack walk: 2 ms of each second. So
//!   another thread finds the lock taken once in 500 times, and then waits for 0.25 µs on average.
//! - Time samples of 16 threads at 1,000 Hz add 16,000 records of 0.2 µs each: 3 ms.
//! - Without contention the lock costs one compare-and-exchange and one store: 5 to 10 ns of a sample's 300 ns or more.
//!
//! The ring to the writer thread has one producer, the thread with the lock, and one consumer.
//!
//! If a thread cannot take the lock for 3 ms, because the owner has lost its processor, it continues without recording.
//! The same holds for a thread that already holds the lock: in a signal handler, or in an allocation of the recorder's
//! own where the host samples `malloc`. Each such event is counted as lost.

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

/// One profiling run of this process. Dropping it ends the run, if it was not [finished](Session::finish) before.
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
    /// One line that says why the file could not be opened or the thread could not be started.
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

    /// The memory of the session.
    pub(crate) const fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Another handle of the session in a slot. The caller does not drop it.
    pub(crate) const fn of_slot(slot: &'static Slot) -> Self {
        Self { slot }
    }

    /// Begins a recording in the calling thread. Returns `None` if that is not possible now, and counts one event of
    /// the given kind as lost. Also returns `None` if the session has ended.
    ///
    /// Costs about 30 ns, mostly for reading the clock. A recording should last about a microsecond: no other thread
    /// records meanwhile, and the caller must not run the program's code.
    #[inline(always)]
    pub fn record(&self, wanted_for: LostKind) -> Option<Recording<'_>> {
        if !self.slot.lock.acquire() {
            self.lost(wanted_for, 1);
            return None;
        }
        self.begin_with_lock()
    }

    /// Begins a recording, as [`Session::record`] does, but counts nothing as lost.
    pub(crate) fn try_record(&self) -> Option<Recording<'_>> {
        if self.slot.lock.acquire() {
            self.begin_with_lock()
        } else {
            None
        }
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

    /// The time since the session's start. Does not take the lock. In the child of a fork, it is the parent's time
    /// until the first recording.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.slot.clock().now()
    }

    /// Counts events that could not be recorded. Any code may call this at any time, including a signal handler.
    pub fn lost(&self, kind: LostKind, events: u64) {
        self.slot.lost.add(kind, events);
    }

    /// Removes the key of a function whose object is about to be freed: another object may soon have the same address.
    /// Returns whether the host must discard the data that it derived from the function: the function was known, or the
    /// session cannot check that now.
    ///
    /// If the lock is not available, the next recording first removes all keys. Functions that are used after that are
    /// defined again.
    pub fn forget_function(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.functions.forget(key))
    }

    /// Removes the key of a type, in the same way as [`Session::forget_function`].
    pub fn forget_type(&self, key: u64) -> bool {
        self.forget(|recorder| recorder.interner.types.forget(key))
    }

    fn forget(&self, forget: impl FnOnce(&mut Recorder) -> bool) -> bool {
        if !self.slot.lock.acquire() {
            self.slot.must_forget_keys.store(true, Release);
            return true;
        }
        // In a child whose parent was interrupted in the middle of a recording, the recorder must not be used.
        let is_usable = self.slot.is_running() && !self.slot.fork.is_child();
        // SAFETY: the lock was acquired, and is released below.
        let was_known = match unsafe { self.slot.recorder() } {
            Some(recorder) if is_usable => forget(recorder),
            _ => true,
        };
        self.slot.lock.release();
        was_known
    }

    /// Ends the session: writes everything recorded and closes the file. Later recordings do nothing. `allocated` is
    /// the number of bytes that this process allocated during the session.
    ///
    /// Waits for the writer thread as long as it makes progress. If it makes none for some seconds, the profile stays
    /// without its end.
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

    /// Removes the recorder, which ends all recording. `None` if the session has ended, or if the calling thread is
    /// inside a recording.
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
            // In the child of a fork: the parent finishes its own data.
            recorder.begin();
        }
        let recorder = place.take();
        slot.lock.release();
        recorder
    }

    /// Changes the writer's test settings between two recordings.
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

/// One thread's exclusive right to record. Events can be recorded only through this type.
///
/// Events without room are counted as lost. Definitions return `None` then: the host counts the sample that needs them
/// as lost, and asks for the definitions again with the next sample.
pub struct Recording<'session> {
    recorder: &'session mut Recorder,
    now: Nanos,
    /// The lock belongs to one thread, so a recording must not move to another.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Recording<'_> {
    #[inline]
    fn drop(&mut self) {
        self.recorder.slot().lock.release();
    }
}

impl Recording<'_> {
    /// The session's time at the start of the recording.
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

    /// The epoch of all numbers that this recording returns. A host keeps state derived from them in a
    /// [`PerEpoch`](crate::PerEpoch).
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

    /// The number of events that currently fit into the ring.
    #[must_use]
    pub fn room(&self) -> usize {
        self.recorder.room()
    }

    /// How frames of a function appear in stacks, if the function is known.
    #[inline]
    #[must_use]
    pub fn function(&self, key: u64) -> Option<Appearance> {
        self.recorder.interner.functions.get(key)
    }

    /// Defines a function. `appearance` says how its frames appear: [`Appearance::Frame`] or
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

    /// Makes frames of a function [hidden](Appearance::Hidden) from now on.
    pub fn hide_function(&mut self, key: u64) -> Option<Appearance> {
        let functions = &mut self.recorder.interner.functions;
        functions.reserve()?;
        functions.insert(key, Appearance::Hidden);
        Some(Appearance::Hidden)
    }

    /// The number of a function that is identified by its name only: a note in place of frames, or work of the
    /// collector. A new name is defined first.
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

    /// Defines a code object that the host itself identifies later.
    pub fn code(&mut self, code: &Code<'_>) -> Option<CodeId> {
        self.recorder.define_code(code)
    }

    /// The number of a stack node. A new node is defined first.
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

    /// Defines a type. `detail` is a value of the host's own.
    pub fn define_type(&mut self, key: u64, name: &TypeName<'_>, detail: u32) -> Option<KnownType> {
        let id = self.recorder.define_type(name.name, name.native)?;
        let known = KnownType { id, detail };
        self.recorder.interner.types.insert(key, known);
        Some(known)
    }

    /// The number of a type that is identified by its name only. A new name is defined first.
    #[inline]
    pub fn named_type(&mut self, name: &'static str) -> Option<TypeId> {
        if let Some(known) = self.recorder.interner.types.named(name) {
            return Some(known);
        }
        let id = self.recorder.define_type(name, "")?;
        self.recorder.interner.types.insert_named(name, id);
        Some(id)
    }

    /// A thread, identified by the operating system's number. A new thread is defined first.
    #[inline]
    pub fn thread(&mut self, os_id: u64) -> Option<ThreadId> {
        if let Some(known) = self.recorder.interner.threads.last(os_id) {
            return Some(known.id);
        }
        self.other_thread(os_id, None)
    }

    /// A thread, as in [`Recording::thread`]. Except for the main thread, `name` is called once to get the thread's
    /// name.
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

    /// Gives a thread another name, if the thread is defined.
    pub fn rename_thread(&mut self, os_id: u64, name: &str) {
        if let Some(known) = self.recorder.interner.threads.get(os_id) {
            self.rename(known.id, name);
        }
    }

    fn rename(&mut self, thread: ThreadId, name: &str) {
        let record = text(name).and_then(|name| Record::bulky(Bulky::ThreadName(thread, name)));
        // Without room for the name, the thread is shown by its number.
        record.and_then(|record| self.recorder.push(record));
    }

    /// Publishes a sample provisionally. The host records it later, with more details; if the process is killed before
    /// that, the profile contains the published details. Samples are published and recorded in the order of their
    /// times. A sample may be published again. Returns whether there was room.
    pub fn publish_provisionally(&mut self, allocation: Allocation) -> bool {
        // Skipped while the ring is half full, so that it does not displace other events.
        self.recorder.is_roomy()
            && self
                .recorder
                .push(Record::Provisional(allocation))
                .is_some()
    }

    /// Records an allocation sample, or counts it as lost if there is no room.
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

    /// Records the time samples whose ticks have arrived since the last call. See [`ticks`].
    pub fn ticks(&mut self, stack: impl FnMut(&mut Self, &ticks::Tick<'_>) -> Option<NodeId>) {
        ticks::TICKS.record(self, stack);
    }
}
