//! Takes and finishes samples, with the interpreter's lock held.

use std::ops::Range;

use nthbyte_host::probes;
use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, LostKind, Nanos, SampleId, SourceId, Survival, TypeId,
};
use nthbyte_sampling::{Period, Weight};

use super::followed::Followed;
use super::statistics::Statistics;
use crate::labels;
use crate::stacks::{Stacks, Vmprof};
use crate::types::{Recent, Types};
use nthbyte_rpython::Nursery;
use nthbyte_rpython::PendingSample;
use nthbyte_rpython::backlog::{Backlog, Finished, TypeIds, drain};
use nthbyte_rpython::binary::Redirect;
use nthbyte_rpython::majors::{Majors, State};
use nthbyte_session::{Mark, PerEpoch, Recording, Session};

/// If more samples than this are pending, they are recorded before the next minor collection. Then it is not known
/// whether their objects survive.
const MOST_PENDING: usize = 1 << 18;
/// Samples in quick succession are not published provisionally one by one, but when the first is this old, or when the
/// count limit is reached. Usually a minor collection comes earlier. To publish each sample takes an eighth of a
/// sample's time.
const UNPUBLISHED_FOR: Nanos = Nanos(1_000_000);
const MOST_UNPUBLISHED: usize = 16;
/// A sample that is pending for longer than this is published again, with its type.
const TYPED_AFTER: Nanos = Nanos(1_000_000_000);
/// After this many minor collections without a large object `free` is not hooked any more. A redirection may take two
/// system calls, and a hooked `free` takes a nanosecond more.
const WATCHED_MINORS: u32 = 16;
/// Number of objects whose headers are fetched into the cache together: after a collection the
/// headers are not in it.
const FETCHED_TOGETHER: usize = 16;

/// Takes samples and finishes them.
pub struct Sampling {
    pub nursery: Nursery,
    stacks: Stacks,
    types: Types,
    pub statistics: Statistics,
    /// `None` if `major_collection_step` was not found.
    pub majors: Option<Majors>,
    pub pending: Vec<PendingSample>,
    /// The number of large objects among the pending samples.
    pending_large: usize,
    /// The number of pending samples, from the oldest on, that were published.
    published: usize,
    /// The number of pending samples that were published with their types.
    typed: usize,
    profile: PerEpoch<Profile>,
    /// The library's imports of `free`. They are redirected while a sampled large object is pending, and for
    /// [`WATCHED_MINORS`] minor collections after that.
    frees: Vec<Redirect>,
    watching: bool,
    /// Minor collections since the last large object was sampled.
    minors_without_large: u32,
    pub in_reserve: bool,
    pub in_minor: bool,
}

/// The state that belongs to one profile.
#[derive(Default)]
struct Profile {
    /// The time of the last sample.
    sampled: Option<Nanos>,
    /// Finished events that wait for room in the ring.
    backlog: Backlog,
    followed: Followed,
}

/// The parts of an engine that remain after its end.
pub struct Remains {
    /// The session.
    pub session: Session,
    /// `_vmprof`, which must be disabled.
    pub vmprof: Vmprof,
    /// Bytes that were allocated while sampling was on.
    pub allocated: u64,
    /// Sentences for the profile's reader.
    pub notes: Vec<String>,
    /// The type names, for the next session.
    pub types: Types,
}

impl Sampling {
    /// Starts sampling.
    pub fn new(
        session: &Session,
        mut nursery: Nursery,
        vmprof: Vmprof,
        types: Types,
        statistics: Statistics,
        majors: Option<Majors>,
        frees: Vec<Redirect>,
    ) -> Self {
        if types.await_probe_instances() {
            // The probe instances are old after a collection. A collection costs least now, before the program has
            // filled the nursery.
            nursery.close();
        }
        let mut profile = PerEpoch::default();
        if let Some(recording) = session.record(LostKind::Other) {
            profile.of(recording.epoch());
        }
        Self {
            nursery,
            stacks: Stacks::new(vmprof),
            types,
            statistics,
            majors,
            pending: Vec::with_capacity(4096),
            pending_large: 0,
            published: 0,
            typed: 0,
            profile,
            frees,
            watching: false,
            minors_without_large: 0,
            in_reserve: false,
            in_minor: false,
        }
    }

    /// Ends sampling: restores the nursery and the imports.
    pub fn stop(&mut self) {
        self.nursery.end();
        self.watch(false);
    }

    /// The parts that remain after [`Sampling::finish_all`].
    pub fn into_remains(self, session: Session) -> Remains {
        let notes = self.notes();
        Remains {
            session,
            vmprof: self.stacks.into_vmprof(),
            allocated: self.nursery.allocated(),
            notes,
            types: self.types,
        }
    }

    /// The names of types, when nothing is sampled any more.
    pub fn take_types(&mut self) -> Types {
        std::mem::take(&mut self.types)
    }

    /// Sees to it that what [`take_followed`](Self::take_followed) returns is of this profile.
    pub fn follow(&mut self, recording: &mut Recording<'_>) {
        self.begin(recording);
    }

    /// The places of samples' objects that live, when nothing is sampled any more. Not of those that are in the nursery, that
    /// are large, or that waited for room in the ring.
    pub fn take_followed(&mut self) -> Vec<(usize, SampleId)> {
        self.profile.current().followed.take()
    }

    /// `_vmprof`, to enable it again.
    pub fn vmprof(&mut self) -> &mut Vmprof {
        self.stacks.vmprof()
    }

    /// The current collection frees a large block.
    pub fn freed(&mut self, block: usize) {
        if self.pending_large > 0 {
            let _ = self.pending.iter_mut().any(|one| one.note_free(block));
        }
    }

    /// Records everything that is not recorded yet, at the end of the session.
    pub fn finish_all(&mut self, session: &Session, thread_names: Vec<(u64, String)>) {
        if let Some(mut recording) = session.record(LostKind::Other) {
            self.begin(&mut recording);
            self.write_out(&mut recording);
        }
        session.lost(LostKind::Allocations, self.pending.len() as u64);
        if let Some(recording) = session.record(LostKind::Other) {
            let epoch = recording.epoch();
            drop(recording);
            let backlog = &mut self.profile.of(epoch).backlog;
            let types = &mut self.types;
            let left = drain(
                || session.record(LostKind::Other),
                |recording| {
                    backlog.catch_up(recording, types);
                    backlog.len()
                },
            );
            session.lost(LostKind::Allocations, left as u64);
        }
        if let Some(mut recording) = session.record(LostKind::Other) {
            self.statistics.become_due();
            self.record_memory(&mut recording);
            for (os_id, name) in thread_names {
                recording.rename_thread(os_id, &name);
            }
        }
    }

    /// Records memory totals, and says what was recorded up to now, with the samples that are pending.
    pub fn mark(&mut self, session: &Session) -> Option<Mark> {
        let mut recording = session.record(LostKind::Other)?;
        self.begin(&mut recording);
        self.statistics.become_due();
        self.record_memory(&mut recording);
        let recorded = recording.mark();
        Some(Mark {
            samples: recorded.samples + self.pending.len() as u64,
            allocated: Some(self.nursery.allocated()),
            ..recorded
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.nursery.pressures() > 0 {
            notes.push(format!(
                "memory pressure ended the nursery early {} times; up to a period of bytes was not counted each time",
                self.nursery.pressures()
            ));
        }
        if self.majors.is_none() {
            notes.push(
                "this PyPy's major collections were not found; the profile has none".to_owned(),
            );
        }
        if Vmprof::is_taken_away() {
            notes.push(
                "the program switched _vmprof off: stacks and time samples end there".to_owned(),
            );
        }
        if self.stacks.is_broken() {
            notes.push(
                "PyPy's list of frames was found to differ from its stack; up to 1024 stacks before that may be wrong"
                    .to_owned(),
            );
        }
        notes
    }

    /// Takes one sample.
    pub fn sample(
        &mut self,
        recording: &mut Recording<'_>,
        object: usize,
        size: usize,
        points: u32,
        is_large: bool,
    ) {
        self.begin(recording);
        let time = recording.now();
        let here = self.stacks.here(recording);
        let Some((thread, stack)) = here else {
            recording.lost(LostKind::Allocations, 1);
            return;
        };
        let Some(labels) = labels::here(recording) else {
            recording.lost(LostKind::Allocations, 1);
            return;
        };
        let allocation = Allocation {
            time,
            thread,
            stack,
            size: size as u64,
            block: size as u64,
            points,
            type_id: TypeId::UNKNOWN,
            survival: Survival::Unsaid,
            labels,
            source: SourceId::ALLOCATIONS,
        };
        let period = self.nursery.period();
        let pending = if is_large {
            PendingSample::large(object, size, allocation, period)
        } else {
            PendingSample::in_nursery(object, allocation, period)
        };
        if self.pending.len() >= MOST_PENDING {
            self.write_out(recording);
        } else if let Some(oldest) = self.pending.get(self.typed)
            && time.0 - oldest.allocation.time.0 > TYPED_AFTER.0
        {
            self.publish_types(recording);
        }
        if self.pending.try_reserve(1).is_err() {
            recording.lost(LostKind::Allocations, 1);
            return;
        }
        self.pending.push(pending);
        let bytes = size as u64;
        probes::allocated(object, bytes, || {
            let distances = recording.meta().distances();
            Weight::of(distances, period, bytes, bytes, points).bytes
        });
        if is_large {
            self.pending_large += 1;
            self.minors_without_large = 0;
            self.watch(true);
        }
        let profile = self.profile.of(recording.epoch());
        let is_recent = |other: Nanos| time.0.saturating_sub(other.0) < UNPUBLISHED_FOR.0;
        let oldest = self.pending.get(self.published).unwrap_or(&pending);
        let follows = profile.sampled.replace(time).is_some_and(is_recent);
        let are_many = self.pending.len() - self.published >= MOST_UNPUBLISHED;
        if is_large || !follows || are_many || !is_recent(oldest.allocation.time) {
            self.publish(recording);
        }
    }

    /// Changes the nursery's period if it is another one. The samples until here keep theirs.
    #[inline]
    pub fn follow_period(&mut self, period: u64) {
        if period != self.nursery.period()
            && let Some(period) = Period::new(period)
        {
            self.nursery.set_period(period);
        }
    }

    /// Publishes the samples that were not published yet, if there is room.
    #[inline(never)]
    fn publish(&mut self, recording: &mut Recording<'_>) {
        while let Some(pending) = self.pending.get(self.published)
            && recording.publish_provisionally(pending.allocation, pending.period)
        {
            self.published += 1;
        }
    }

    /// Switches the redirection of `free` on or off.
    fn watch(&mut self, on: bool) {
        if self.watching != on {
            self.watching = on;
            // If this fails, either large objects count as survivors, or the hook stays and only calls the
            // original.
            self.frees.iter().for_each(|free| _ = free.turn(on));
        }
    }

    /// Writes waiting events, if there is room. In the child of a fork, first forgets the events of the
    /// parent.
    fn begin(&mut self, recording: &mut Recording<'_>) {
        if !self.profile.is_of(recording.epoch()) {
            self.begin_in_child();
        }
        let backlog = &mut self.profile.of(recording.epoch()).backlog;
        backlog.catch_up(recording, &mut self.types);
    }

    /// Starts again in a child process with a profile of its own.
    #[cold]
    #[inline(never)]
    fn begin_in_child(&mut self) {
        self.statistics.forget();
        if let Some(majors) = &mut self.majors {
            majors.forget();
        }
        self.nursery.forget_allocated();
        self.forget_pending();
        self.watch(false);
    }

    /// Writes an event to the ring, or keeps it until there is room.
    fn finish(&mut self, recording: &mut Recording<'_>, finished: Finished) -> Option<SampleId> {
        let backlog = &mut self.profile.of(recording.epoch()).backlog;
        backlog.push(finished, recording, &mut self.types)
    }

    /// Notes that no sample is pending any more.
    fn forget_pending(&mut self) {
        self.pending.clear();
        (self.pending_large, self.published, self.typed) = (0, 0, 0);
    }

    /// Called instead of [`Sampling::settle`] or [`Sampling::step`] if nothing can be recorded. Drops the pending samples,
    /// and returns their number: their objects may lie elsewhere now, or nowhere.
    #[cold]
    pub fn skip_collection(&mut self) -> u64 {
        let lost = self.pending.len() as u64;
        self.forget_pending();
        self.profile.current().followed.forget();
        self.stacks.collected();
        self.stacks.code_freed();
        lost
    }

    /// Records the pending samples; it is not known whether the objects survive.
    #[cold]
    #[inline(never)]
    fn write_out(&mut self, recording: &mut Recording<'_>) {
        let mut pending = std::mem::take(&mut self.pending);
        for object in &mut pending {
            self.read_type(object);
            self.finish(recording, Finished::Sample(*object));
        }
        self.pending = pending;
        self.forget_pending();
    }

    /// Publishes the pending samples with their types, each once, if there is room.
    #[cold]
    #[inline(never)]
    fn publish_types(&mut self, recording: &mut Recording<'_>) {
        while let Some(&(mut object)) = self.pending.get(self.typed) {
            self.read_type(&mut object);
            let type_id = self.types.id(recording, object.type_number, object.class);
            if !recording.publish_provisionally(object.finish(type_id), object.period) {
                break;
            }
            self.typed += 1;
        }
        self.published = self.published.max(self.typed);
    }

    /// Reads the type of a pending sample's object. Its header has been written: the object is
    /// older than the current allocation.
    fn read_type(&mut self, object: &mut PendingSample) {
        // SAFETY: no collection has begun since the allocation, so the object was not moved, and
        // its header is written.
        unsafe { object.read_type() };
        // SAFETY: as above; an object that a young object refers to is not freed before the young
        // object is old.
        unsafe { self.classify(object, &mut Recent::default()) };
    }

    /// Looks up the class of an instance.
    ///
    /// # Safety
    /// As for [`Types::class`].
    unsafe fn classify(&mut self, object: &mut PendingSample, recent: &mut Recent) {
        if let Some(address) = object.address() {
            // SAFETY: the caller's promise.
            object.class = unsafe { self.types.class(object.type_number, address, recent) };
        }
    }

    /// Called after a minor collection: it is known which objects of pending samples survived it.
    pub fn settle(&mut self, recording: &mut Recording<'_>, started: Nanos) {
        self.begin(recording);
        let ended = recording.now();
        // In the child of a fork the profile's clock starts at zero.
        let started = started.min(ended);
        self.stacks.collected();
        if self.majors.is_none() {
            self.stacks.code_freed();
        }
        self.types.read_probe_instances();
        let mut pending = std::mem::take(&mut self.pending);
        let mut recent = Recent::default();
        for together in pending.chunks_mut(FETCHED_TOGETHER) {
            together.iter().for_each(PendingSample::prefetch);
            for object in &*together {
                // SAFETY: see `resolve` below.
                unsafe { object.prefetch_moved() };
            }
            for object in together {
                // SAFETY: the collection has just ended and nothing was allocated since.
                unsafe { object.resolve() };
                // SAFETY: a minor collection frees no old objects, and a major collection executes its
                // steps only after it: each object that this one referred to is in its old place, or
                // was moved.
                unsafe { self.classify(object, &mut recent) };
                let sample = self.finish(recording, Finished::Sample(*object));
                // Without the steps of major collections, nothing says when an object is freed.
                if let (Some(sample), Some(address), true) =
                    (sample, object.moved_to(), self.majors.is_some())
                {
                    let profile = self.profile.of(recording.epoch());
                    profile.followed.add(address, sample);
                }
            }
        }
        self.pending = pending;
        self.forget_pending();
        self.minors_without_large += 1;
        if self.minors_without_large > WATCHED_MINORS {
            self.watch(false);
        }
        let is_sweeping = self.majors.as_ref().map(Majors::is_sweeping);
        let totals = self.statistics.after_minor(recording.now(), is_sweeping);
        self.collected(recording, CollectionKind::Minor, started..ended, totals);
        self.record_memory(recording);
    }

    /// Records memory totals, if the last ones are old enough.
    fn record_memory(&mut self, recording: &mut Recording<'_>) {
        let is_sweeping = self.majors.as_ref().map(Majors::is_sweeping);
        let (now, allocated) = (recording.now(), self.nursery.allocated());
        self.statistics
            .memory(recording, now, allocated, is_sweeping);
    }

    /// Called after a step of a major collection. `before` is the collector's state before the
    /// step.
    pub fn step(&mut self, recording: &mut Recording<'_>, before: State, started: Nanos) {
        self.begin(recording);
        let times = started.min(recording.now())..recording.now();
        let in_use = || self.statistics.in_use();
        let majors = self.majors.as_mut();
        let step = majors.and_then(|majors| majors.step(before, &times, in_use));
        let followed = &mut self.profile.of(recording.epoch()).followed;
        let Some(step) = step else {
            followed.forget();
            return;
        };
        if step.has_marked {
            self.stacks.code_freed();
            match self.majors.as_ref().is_some_and(Majors::is_sweeping) {
                // SAFETY: the step that ends the marking sweeps nothing. Each sweep before it began with this call, too, or
                // with an empty list.
                true => unsafe { followed.marked() },
                false => followed.forget(),
            }
        }
        let kind = CollectionKind::MajorStep(step.phase);
        self.collected(recording, kind, times.clone(), (None, None));
        if let Some((began, left)) = step.ends {
            let totals = (None, left);
            self.collected(recording, CollectionKind::Major, began..times.end, totals);
        }
    }

    /// Records a collection or a step of one, and the bytes in use before and after it, where they are known.
    fn collected(
        &mut self,
        recording: &mut Recording<'_>,
        kind: CollectionKind,
        times: Range<Nanos>,
        (before, after): (Option<u64>, Option<u64>),
    ) {
        if let Some(thread) = Stacks::thread(recording) {
            let collection = Collection {
                start: times.start,
                duration: Nanos(times.end.0 - times.start.0),
                thread,
                kind,
                freed_objects: None,
                bytes_before: before,
                bytes_after: after,
            };
            self.finish(recording, Finished::Collection(collection));
        }
    }
}
