//! What the hooked functions of the collector (see [`hooks`]) do, and what they keep.
//!
//! Everything here runs with the interpreter's lock held: RPython code holds it whenever it allocates
//! or collects. So one engine serves all threads, without locks of its own.

use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, CpuSample, LostKind, Nanos, Survival, TypeId,
};

use super::backlog::{Backlog, Finished};
use super::classes::Recent;
use super::exports;
use super::majors::{Majors, State};
use super::nursery::Nursery;
use super::patch::Redirect;
use super::stacks::Stacks;
use super::statistics::Statistics;
use super::types::Types;
use super::vmprof::{self, Vmprof};
use super::young::Young;
use nthbyte_session::ticks::TICKS;
use nthbyte_session::{PerEpoch, Recording, Session, guarded};

pub mod hooks;

/// More samples than these do not wait for a minor collection: they are recorded without their fates.
const MOST_YOUNG: usize = 1 << 18;
/// Samples that follow each other faster than this are not published provisionally one by one, but when the first is this
/// old, or there are so many. As a rule a minor collection comes before: to publish each takes an eighth of a sample's time.
const UNPUBLISHED_FOR: Nanos = Nanos(1_000_000);
const MOST_UNPUBLISHED: usize = 16;
/// A sample that is pending for longer than this is published again, with its type.
const TYPED_AFTER: Nanos = Nanos(1_000_000_000);
/// Objects whose headers are fetched into the cache together: the collection has left them far away.
const FETCHED_TOGETHER: usize = 16;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());

/// One session inside the collector.
pub struct Engine {
    session: Session,
    sampling: Sampling,
}

/// What takes samples, and finishes them.
struct Sampling {
    nursery: Nursery,
    stacks: Stacks,
    types: Types,
    statistics: Statistics,
    /// `None` if it is not known where they are taken.
    majors: Option<Majors>,
    young: Vec<Young>,
    profile: PerEpoch<Profile>,
    /// `free` of the library, redirected while the fate of a large object is open.
    frees: Vec<Redirect>,
    watching: bool,
    in_reserve: bool,
    in_minor: bool,
}

/// What belongs to one profile.
#[derive(Default)]
struct Profile {
    /// When the last sample was taken.
    sampled: Option<Nanos>,
    /// So many of the young samples, the oldest, were published.
    published: usize,
    /// So many were published with their types.
    typed: usize,
    /// What is finished and waits for room in the ring.
    backlog: Backlog,
}

/// What is left of an engine.
pub struct Remains {
    /// The session.
    pub session: Session,
    /// `_vmprof`, to be disabled.
    pub vmprof: Vmprof,
    /// Bytes allocated while it was on.
    pub allocated: u64,
    /// Sentences for the profile's reader.
    pub notes: Vec<String>,
    /// The type names, for the next session.
    pub types: Types,
}

impl Engine {
    /// Switches sampling on. The interpreter's lock must be held.
    pub fn begin(
        mut nursery: Nursery,
        session: Session,
        vmprof: Vmprof,
        types: Types,
        statistics: Statistics,
        majors: Option<Majors>,
        frees: Vec<Redirect>,
    ) {
        if types.are_waiting() {
            // They are old after a collection, and now there is little to move.
            nursery.close();
        }
        let mut profile = PerEpoch::default();
        if let Some(recording) = session.record(LostKind::Other) {
            profile.of(recording.epoch());
        }
        let sampling = Sampling {
            nursery,
            stacks: Stacks::new(vmprof),
            types,
            statistics,
            majors,
            young: Vec::with_capacity(4096),
            profile,
            frees,
            watching: false,
            in_reserve: false,
            in_minor: false,
        };
        let engine = Self { session, sampling };
        ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
    }

    /// Switches sampling off, with the interpreter's lock held. `None` if it was not on.
    pub fn end() -> Option<Remains> {
        let engine = ENGINE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if engine.is_null() {
            return None;
        }
        // SAFETY: `begin` made it from a box, and the swap gave it to us alone.
        let Self {
            session,
            mut sampling,
        } = *unsafe { Box::from_raw(engine) };
        sampling.nursery.end();
        guarded(|| sampling.end(&session));
        let notes = sampling.notes();
        let Sampling {
            stacks,
            nursery,
            types,
            ..
        } = sampling;
        Some(Remains {
            session,
            vmprof: stacks.into_vmprof(),
            allocated: nursery.allocated(),
            notes,
            types,
        })
    }

    /// In the child of a fork, which has one thread: gets ready for `_vmprof` to be enabled anew. Whether
    /// it shall be.
    pub fn after_fork() -> bool {
        // SAFETY: there is no other thread.
        unsafe { Self::current() }
            .is_some_and(|engine| engine.sampling.stacks.vmprof().reopen().is_ok())
    }

    /// The engine that is on, for whoever holds the interpreter's lock.
    pub unsafe fn current<'a>() -> Option<&'a mut Self> {
        // SAFETY: the lock's holder is alone with the engine, and the hooks do not nest uses of it:
        // none calls the interpreter while it holds the reference.
        unsafe { ENGINE.load(Ordering::Acquire).as_mut() }
    }

    /// Takes one sample.
    fn sample(&mut self, object: usize, size: usize, points: u32, alone: bool) {
        guarded(|| {
            let recording = self.session.record(LostKind::Allocations);
            if let Some(mut recording) = recording {
                self.sampling
                    .sample(&mut recording, object, size, points, alone);
            }
        });
    }

    /// A large object was allocated.
    pub fn large(&mut self, block: usize, size: usize) {
        // What the collection itself asks for is no object.
        if self.sampling.in_minor {
            return;
        }
        let points = self.sampling.nursery.outside(size);
        if points > 0 {
            self.sample(block, size, points, true);
        }
    }

    /// The collection that is under way frees a large block.
    pub fn freed(&mut self, block: usize) {
        let mut young = self.sampling.young.iter_mut();
        let _ = young.any(|young| young.note_free(block));
    }

    /// A minor collection has ended: the fates of the young are known.
    fn settle(&mut self, started: Nanos) {
        guarded(|| {
            if let Some(mut recording) = self.session.record(LostKind::Other) {
                self.sampling.settle(&mut recording, started);
            }
        });
    }

    /// A step of a major collection has ended, before which the collector was in this state.
    fn step(&mut self, before: State, started: Nanos) {
        guarded(|| {
            if let Some(mut recording) = self.session.record(LostKind::Other) {
                self.sampling.step(&mut recording, before, started);
            }
        });
    }
}

impl Sampling {
    /// The session ends: records what is not recorded yet.
    fn end(&mut self, session: &Session) {
        if let Some(mut recording) = session.record(LostKind::Other) {
            self.begin(&mut recording);
            self.write_out(&mut recording);
        }
        if let Some(recording) = session.record(LostKind::Other) {
            let epoch = recording.epoch();
            drop(recording);
            let backlog = &mut self.profile.of(epoch).backlog;
            backlog.drain(session, &mut self.types);
        }
        if let Some(mut recording) = session.record(LostKind::Other) {
            self.stacks.ticks(&mut recording);
            for (os_id, name) in exports::take_thread_names() {
                recording.rename_thread(os_id, &name);
            }
        }
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
        if vmprof::is_taken_away() {
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
    fn sample(
        &mut self,
        recording: &mut Recording<'_>,
        object: usize,
        size: usize,
        points: u32,
        alone: bool,
    ) {
        self.begin(recording);
        let time = recording.now();
        let here = self.stacks.here(recording);
        let missed_ticks = TICKS.take_missed();
        let Some((thread, stack)) = here else {
            recording.lost(LostKind::Allocations, 1);
            recording.lost(LostKind::CpuSamples, u64::from(missed_ticks));
            return;
        };
        for _ in 0..missed_ticks {
            recording.cpu(CpuSample {
                time,
                thread,
                stack,
            });
        }
        let allocation = Allocation {
            time,
            thread,
            stack,
            size: size as u64,
            block: size as u64,
            points,
            type_id: TypeId::UNKNOWN,
            survival: Survival::Unsaid,
        };
        let young = if alone {
            Young::alone(object, size, allocation)
        } else {
            Young::in_nursery(object, allocation)
        };
        let typed = self.profile.of(recording.epoch()).typed;
        if self.young.len() >= MOST_YOUNG {
            self.write_out(recording);
        } else if let Some(oldest) = self.young.get(typed)
            && time.0 - oldest.allocation.time.0 > TYPED_AFTER.0
        {
            self.publish_types(recording);
        }
        if self.young.try_reserve(1).is_err() {
            recording.lost(LostKind::Allocations, 1);
            return;
        }
        self.young.push(young);
        if alone {
            self.watch(true);
        }
        let profile = self.profile.of(recording.epoch());
        let is_recent = |other: Nanos| time.0.saturating_sub(other.0) < UNPUBLISHED_FOR.0;
        let oldest = self.young.get(profile.published).unwrap_or(&young);
        let follows = profile.sampled.replace(time).is_some_and(is_recent);
        let are_many = self.young.len() - profile.published >= MOST_UNPUBLISHED;
        if alone || !follows || are_many || !is_recent(oldest.allocation.time) {
            self.publish(recording);
        }
    }

    /// Publishes the samples that were not published yet, as far as there is room.
    #[inline(never)]
    fn publish(&mut self, recording: &mut Recording<'_>) {
        let profile = self.profile.of(recording.epoch());
        while let Some(young) = self.young.get(profile.published)
            && recording.publish_provisionally(young.allocation)
        {
            profile.published += 1;
        }
    }

    /// Whether to look at what is freed.
    fn watch(&mut self, on: bool) {
        if self.watching != on {
            self.watching = on;
            self.frees.iter().for_each(|free| free.turn(on));
        }
    }

    /// Hands over what waits for room. In the child of a fork, forgets first what belongs to the parent.
    fn begin(&mut self, recording: &mut Recording<'_>) {
        if !self.profile.is_of(recording.epoch()) {
            self.begin_in_child();
        }
        let backlog = &mut self.profile.of(recording.epoch()).backlog;
        backlog.catch_up(recording, &mut self.types);
    }

    /// This process is a child with a profile of its own.
    #[cold]
    #[inline(never)]
    fn begin_in_child(&mut self) {
        self.statistics.forget();
        if let Some(majors) = &mut self.majors {
            majors.forget();
        }
        self.nursery.forget_allocated();
        self.young.clear();
        self.watch(false);
    }

    /// Hands an event over, or keeps it until there is room.
    fn finish(&mut self, recording: &mut Recording<'_>, finished: Finished) {
        let backlog = &mut self.profile.of(recording.epoch()).backlog;
        backlog.push(finished, recording, &mut self.types);
    }

    /// No sample is young any more; `young` is the list they were on.
    fn none_is_young(&mut self, recording: &Recording<'_>, mut young: Vec<Young>) {
        young.clear();
        self.young = young;
        let profile = self.profile.of(recording.epoch());
        (profile.published, profile.typed) = (0, 0);
        self.watch(false);
    }

    /// Records the young samples without their fates.
    #[cold]
    #[inline(never)]
    fn write_out(&mut self, recording: &mut Recording<'_>) {
        let mut young = std::mem::take(&mut self.young);
        for object in &mut young {
            self.look(object);
            self.finish(recording, Finished::Sample(*object));
        }
        self.none_is_young(recording, young);
    }

    /// Publishes the young samples with their types, each once, as far as there is room.
    #[cold]
    #[inline(never)]
    fn publish_types(&mut self, recording: &mut Recording<'_>) {
        let mut typed = self.profile.of(recording.epoch()).typed;
        while let Some(&(mut object)) = self.young.get(typed) {
            self.look(&mut object);
            let type_id = self.types.id(recording, object.type_number, object.class);
            if !recording.publish_provisionally(object.finish(type_id)) {
                break;
            }
            typed += 1;
        }
        let profile = self.profile.of(recording.epoch());
        profile.typed = typed;
        profile.published = profile.published.max(typed);
    }

    /// Finds out the type of a young sample. Its header has been written: it is older than the
    /// allocation that is under way.
    fn look(&mut self, object: &mut Young) {
        // SAFETY: still young, so where it was; see above.
        unsafe { object.look() };
        // SAFETY: still young; what a young object refers to is not freed before it is old.
        unsafe { self.classify(object, &mut Recent::default()) };
    }

    /// Looks up the class of an instance.
    ///
    /// # Safety
    /// As for [`Types::class`].
    unsafe fn classify(&mut self, object: &mut Young, recent: &mut Recent) {
        if let Some(address) = object.address() {
            // SAFETY: passed on to the caller.
            object.class = unsafe { self.types.class(object.type_number, address, recent) };
        }
    }

    /// A minor collection has ended: the fates of the young are known.
    fn settle(&mut self, recording: &mut Recording<'_>, started: Nanos) {
        self.begin(recording);
        let ended = recording.now();
        // The clock of a child begins anew.
        let started = started.min(ended);
        self.stacks.collected();
        if self.majors.is_none() {
            self.stacks.code_freed();
        }
        self.types.look();
        let mut young = std::mem::take(&mut self.young);
        let mut recent = Recent::default();
        for together in young.chunks_mut(FETCHED_TOGETHER) {
            together.iter().for_each(Young::prefetch);
            for object in &*together {
                // SAFETY: as below.
                unsafe { object.prefetch_moved() };
            }
            for object in together {
                // SAFETY: the collection has just ended and nothing was allocated since.
                unsafe { object.resolve() };
                // SAFETY: a minor collection frees old objects never, and the major one takes its steps only
                // after it: what this object referred to is where it was, or has been moved.
                unsafe { self.classify(object, &mut recent) };
                self.finish(recording, Finished::Sample(*object));
            }
        }
        self.none_is_young(recording, young);
        self.collected(recording, CollectionKind::Minor, started..ended, None);
        let is_sweeping = self.majors.as_ref().map(Majors::is_sweeping);
        let allocated = self.nursery.allocated();
        self.statistics
            .memory(recording, ended, allocated, is_sweeping);
        self.stacks.ticks(recording);
    }

    /// A step of a major collection has ended, before which the collector was in this state.
    fn step(&mut self, recording: &mut Recording<'_>, before: State, started: Nanos) {
        self.begin(recording);
        let times = started.min(recording.now())..recording.now();
        let in_use = || self.statistics.in_use();
        let majors = self.majors.as_mut();
        let Some(step) = majors.and_then(|majors| majors.step(before, &times, in_use)) else {
            return;
        };
        if step.has_marked {
            self.stacks.code_freed();
        }
        let kind = CollectionKind::MajorStep(step.phase);
        self.collected(recording, kind, times.clone(), None);
        if let Some((began, left)) = step.ends {
            self.collected(recording, CollectionKind::Major, began..times.end, left);
        }
    }

    /// Records a collection or a step of one, and the bytes that it left.
    fn collected(
        &mut self,
        recording: &mut Recording<'_>,
        kind: CollectionKind,
        times: Range<Nanos>,
        left: Option<u64>,
    ) {
        if let Some(thread) = Stacks::thread(recording) {
            let collection = Collection {
                start: times.start,
                duration: Nanos(times.end.0 - times.start.0),
                thread,
                kind,
                freed_objects: None,
                bytes_before: None,
                bytes_after: left,
            };
            self.finish(recording, Finished::Collection(collection));
        }
    }
}
