//! A [`Recording`]: the right to record, for a moment.
//!
//! ```text
//! recorder  the producer of the ring
//! interner  threads, functions, types, stack nodes by the host's keys; epochs
//! cell      state for the thread that has a recording
//! ```

mod cell;
mod interner;
mod recorder;

use std::marker::PhantomData;

use nthbyte_host::threads::name_of_thread;
use nthbyte_profile::Compilation;
use nthbyte_profile::Meta;
use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CpuSample, FrameKind, LabelSetId, LostKind, Memory,
    Nanos, Node, NodeId, SampleId, ThreadId, TypeId, TypeName,
};

use crate::mark::Mark;
use crate::pace::Timed;
use crate::ring::{Bulky, Record, text};

pub use cell::RecordingCell;
pub(crate) use interner::Naming;
pub use interner::{Appearance, Epoch, KeyMap, KnownType, PerEpoch};
pub(crate) use recorder::{NAP, Recorder};

/// One thread's exclusive right to record. Events can be recorded only through this type.
///
/// Events without room are counted as lost. Definitions return `None` then: the host counts the sample that needs them
/// as lost, and asks for the definitions again with the next sample.
pub struct Recording<'session> {
    pub(crate) recorder: &'session mut Recorder,
    now: Nanos,
    /// The reading of a clock, if this recording is timed; otherwise 0.
    timed: u64,
    is_sample: bool,
    /// The lock belongs to one thread, so a recording must not move to another.
    not_send: PhantomData<*mut ()>,
}

impl Drop for Recording<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.timed != 0 {
            let kind = if self.is_sample {
                Timed::Sample
            } else {
                Timed::End
            };
            self.recorder.end_timed(kind, self.timed);
        }
        self.recorder.slot().lock.release();
    }
}

impl<'session> Recording<'session> {
    /// Begins a recording, which counts as one of this kind. The caller has the lock.
    #[inline(always)]
    pub(crate) fn begin(recorder: &'session mut Recorder, wanted_for: Option<LostKind>) -> Self {
        let mut recording = Self {
            recorder,
            now: Nanos(0),
            timed: 0,
            is_sample: false,
            not_send: PhantomData,
        };
        recording.now = recording.recorder.begin();
        match wanted_for {
            Some(LostKind::Allocations) => {
                recording.is_sample = true;
                recording.timed = recording.recorder.count(recording.now);
            }
            Some(LostKind::Other) if recording.recorder.pace.count_end() => {
                let samples = recording.recorder.samples();
                recording.timed = recording.recorder.pace.begin_timed(samples);
            }
            _ => {}
        }
        recording
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
    /// [`PerEpoch`].
    #[inline]
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.recorder.interner.epoch
    }

    /// The epoch of the numbers of functions, types and stack nodes: it may end before [`Self::epoch`] does. A number from
    /// before is not wrong, but what it stands for may be forgotten soon.
    #[inline]
    #[must_use]
    pub const fn definitions(&self) -> Epoch {
        self.recorder.interner.definitions
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

    /// What was recorded so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            time: self.now,
            samples: self.recorder.samples().into(),
            time_samples: self.recorder.time_samples(),
            lost: self.recorder.slot().lost.all(),
            allocated: None,
            path: self.recorder.path().to_owned(),
        }
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

    /// The node of a function that is identified by its [name only](Self::named_function), below its caller. `None` if there
    /// is no room.
    pub fn named_node(
        &mut self,
        parent: NodeId,
        name: &'static str,
        kind: FrameKind,
    ) -> Option<NodeId> {
        let code = self.named_function(name)?;
        self.node(Node {
            parent,
            code,
            position: 0,
            kind,
        })
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
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn named_type(&mut self, name: &'static str) -> Option<TypeId> {
        self.own_named_type(name, "")
    }

    /// A type as in [`Recording::named_type`], with the interpreter's own name, or the C library's.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn own_named_type(&mut self, name: &'static str, own: &'static str) -> Option<TypeId> {
        if let Some(known) = self.recorder.interner.types.named(name) {
            return Some(known);
        }
        let id = self.recorder.define_type(name, own)?;
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

    /// A thread, as in [`Recording::thread`]. Except for the main thread, `name` is called once to get the name that the
    /// host has for the thread.
    #[inline]
    pub fn thread_named_by(
        &mut self,
        os_id: u64,
        name: &mut dyn FnMut() -> Option<String>,
    ) -> Option<ThreadId> {
        self.thread_named(os_id, Naming::Host, name)
    }

    /// The calling thread, whose number this is, as in [`Recording::thread`]. It has the system's name until the host gives
    /// another one ([`Recording::thread_named_by`]).
    pub fn thread_named_by_system(&mut self, os_id: u64) -> Option<ThreadId> {
        self.thread_named(os_id, Naming::System, &mut name_of_thread)
    }

    #[inline]
    pub(crate) fn thread_named(
        &mut self,
        os_id: u64,
        naming: Naming,
        name: &mut dyn FnMut() -> Option<String>,
    ) -> Option<ThreadId> {
        match self.recorder.interner.threads.last(os_id) {
            Some(known) if known.naming >= naming => Some(known.id),
            _ => self.other_thread(os_id, Some((naming, name))),
        }
    }

    #[cold]
    #[inline(never)]
    fn other_thread(
        &mut self,
        os_id: u64,
        name: Option<(Naming, &mut dyn FnMut() -> Option<String>)>,
    ) -> Option<ThreadId> {
        let known = match self.recorder.interner.threads.get(os_id) {
            Some(known) => known,
            None => self.recorder.define_thread(os_id)?,
        };
        if let Some((naming, name)) = name
            && known.naming < naming
        {
            self.recorder.interner.threads.set_naming(os_id, naming);
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

    /// The period of the interpreter's memory from now on, in bytes. It changes with `--every auto` only ([`crate::pace`]).
    /// A host that finds another one than its own changes its sampler; it may do so later.
    #[inline]
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.recorder.pace.period()
    }

    /// Publishes a sample provisionally. The host records it later, with more details; if the process is killed before
    /// that, the profile contains the published details. Samples are published and recorded in the order of their
    /// times. A sample may be published again. `period` is as for [`Recording::allocation`]. Returns whether there was room.
    pub fn publish_provisionally(&mut self, allocation: Allocation, period: u64) -> bool {
        // Skipped while the ring is half full, so that it does not displace other events.
        self.recorder.is_roomy()
            && self
                .recorder
                .set_period(allocation.source, period)
                .is_some()
            && self
                .recorder
                .push(Record::Provisional(allocation))
                .is_some()
    }

    /// Records an allocation sample, or counts it as lost if there is no room. `period` is the one under which its sample
    /// point was drawn: its source's period at that time, in bytes.
    #[inline]
    pub fn allocation(&mut self, allocation: Allocation, period: u64) -> Option<SampleId> {
        self.allocation_in(allocation, period, 0)
    }

    /// Records an allocation sample, as [`allocation`](Self::allocation), with the number of the arena in which its block
    /// would lie if it had not been sampled; 0 if that is not known.
    #[inline]
    pub fn allocation_in(
        &mut self,
        allocation: Allocation,
        period: u64,
        arena: u32,
    ) -> Option<SampleId> {
        let record = Record::Allocation(allocation, arena);
        if self.recorder.samples() == u32::MAX
            || self
                .recorder
                .set_period(allocation.source, period)
                .is_none()
            || self.recorder.push(record).is_none()
        {
            self.lost(LostKind::Allocations, 1);
            return None;
        }
        self.recorder
            .sampled(allocation.source, allocation.block, period);
        Some(SampleId(self.recorder.count_sample()))
    }

    /// Records that a sampled object was freed.
    #[inline(always)]
    pub fn freed(&mut self, sample: SampleId, time: Nanos) {
        self.recorder.pace.freed();
        self.recorder
            .push_or_count(Some(Record::Freed(sample, time)), LostKind::Other);
    }

    /// The label set `parent` with one more label. A new set is defined first. `None` if there is no room.
    pub fn label(
        &mut self,
        parent: LabelSetId,
        key: &'static str,
        value: &str,
    ) -> Option<LabelSetId> {
        self.recorder.label(parent, key, value)
    }

    /// Records a remark on the run.
    pub fn note(&mut self, note: &'static str) {
        self.recorder
            .push_or_count(Record::bulky(Bulky::Note(note)), LostKind::Other);
    }

    /// Wakes the writer thread, so that it looks for new threads, and records ticks, soon.
    pub fn wake_writer(&mut self) {
        self.recorder.wake(self.now);
    }

    /// Removes the key of a function: see [`Session::forget_function`](crate::Session::forget_function).
    pub fn forget_function(&mut self, key: u64) -> bool {
        self.recorder.interner.functions.forget(key)
    }

    /// Records a time sample.
    pub fn cpu(&mut self, sample: CpuSample) {
        match self.recorder.push(Record::Cpu(sample)) {
            Some(()) => self.recorder.count_time_sample(),
            None => self.lost(LostKind::CpuSamples, 1),
        }
    }

    /// Records a collection.
    pub fn collection(&mut self, collection: Collection) {
        self.recorder
            .push_or_count(Some(Record::collection(collection)), LostKind::Other);
    }

    /// Records a piece of a JIT compiler's work.
    pub fn compilation(&mut self, compilation: Compilation) {
        self.recorder
            .push_or_count(Some(Record::Compilation(compilation)), LostKind::Other);
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
}
