//! What the hooked functions of the collector (see [`super::hooks`]) do, and what they keep.
//!
//! Everything here runs with the interpreter's lock held: RPython code holds it whenever it allocates
//! or collects. So one engine serves all threads, without locks of its own.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, CpuSample, LostKind, Nanos, Survival, TypeId,
};

use super::backlog::{Backlog, Finished};
use super::majors::{Majors, State};
use super::nursery::Nursery;
use super::pending::Young;
use super::statistics::Statistics;
use crate::binary::Redirect;
use crate::stacks::{Stacks, Vmprof};
use crate::types::{Recent, Types};
use nthbyte_session::Recorder;

/// More samples than these do not wait for a minor collection: they are recorded without their fates.
const MOST_YOUNG: usize = 1 << 18;
/// Samples that follow each other faster than this are not announced one by one, but when the first is this old, or there
/// are so many. As a rule a minor collection settles them before: announcing each takes an eighth of a sample's time.
const UNANNOUNCED_FOR: Nanos = Nanos(1_000_000);
const MOST_UNANNOUNCED: usize = 16;
/// A sample that waits longer than this for a minor collection is announced again, with its type.
const PATIENCE: Nanos = Nanos(1_000_000_000);
/// After so many minor collections without a large object `free` is not watched any more. To redirect it may take two
/// system calls, and a `free` that is watched a nanosecond more.
const WATCHED_MINORS: u32 = 16;
/// Objects whose headers are fetched into the cache together: the collection has left them far away.
const FETCHED_TOGETHER: usize = 16;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());
/// Whether a panic was caught; nothing is sampled or recorded from then on.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// One session inside the collector.
pub struct Engine {
    pub(super) nursery: Nursery,
    pub(super) recorder: Recorder,
    stacks: Stacks,
    types: Types,
    statistics: Statistics,
    /// `None` if it is not known where they are taken.
    pub(super) majors: Option<Majors>,
    pub(super) young: Vec<Young>,
    /// When the last sample was taken.
    sampled: Option<Nanos>,
    /// So many of them, the oldest, were announced.
    announced: usize,
    /// So many were announced with their types.
    told: usize,
    /// What is finished and waits for room in the ring.
    backlog: Backlog,
    /// Large objects among the pending samples.
    pending_large: usize,
    /// `free` of the library, redirected while it is watched: while the fate of a large object is open, and for some
    /// minor collections after.
    frees: Vec<Redirect>,
    watching: bool,
    /// Minor collections since the last large object was sampled.
    minors_without_large: u32,
    pub(super) in_reserve: bool,
    pub(super) in_minor: bool,
}

/// What is left of an engine.
pub struct Remains {
    /// The session's recorder.
    pub recorder: Recorder,
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
        recorder: Recorder,
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
        let engine = Self {
            nursery,
            recorder,
            stacks: Stacks::new(vmprof),
            types,
            statistics,
            majors,
            young: Vec::with_capacity(4096),
            sampled: None,
            announced: 0,
            told: 0,
            backlog: Backlog::default(),
            pending_large: 0,
            frees,
            watching: false,
            minors_without_large: 0,
            in_reserve: false,
            in_minor: false,
        };
        ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
    }

    /// Switches sampling off, with the interpreter's lock held. `thread_names` are those that Python knows, by the
    /// operating system's numbers. `None` if it was not on.
    pub fn end(thread_names: Vec<(u64, String)>) -> Option<Remains> {
        let engine = ENGINE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if engine.is_null() {
            return None;
        }
        // SAFETY: `begin` made it from a box, and the swap gave it to us alone.
        let mut engine = unsafe { Box::from_raw(engine) };
        engine.nursery.end();
        engine.watch(false);
        engine.write_out();
        engine
            .backlog
            .drain(&mut engine.recorder, &mut engine.types);
        engine.stacks.ticks(&mut engine.recorder);
        engine
            .stacks
            .name_threads(&mut engine.recorder, thread_names);
        let notes = engine.notes();
        let Self {
            recorder,
            stacks,
            nursery,
            types,
            ..
        } = *engine;
        Some(Remains {
            recorder,
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
        unsafe { Self::current() }.is_some_and(|engine| engine.stacks.vmprof().reopen().is_ok())
    }

    /// The engine that is on, for whoever holds the interpreter's lock.
    pub unsafe fn current<'a>() -> Option<&'a mut Self> {
        // SAFETY: the lock's holder is alone with the engine, and the hooks do not nest uses of it:
        // none calls the interpreter while it holds the reference.
        unsafe { ENGINE.load(Ordering::Acquire).as_mut() }
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
        if PANICKED.load(Ordering::Relaxed) {
            notes.push("an error inside nthbyte ended the sampling early".to_owned());
        }
        notes
    }

    /// Takes one sample.
    pub(super) fn sample(&mut self, object: usize, size: usize, points: u32, alone: bool) {
        let time = self.attend();
        let here = self.stacks.here(&mut self.recorder);
        let missed_ticks = self.stacks.missed_ticks();
        let Some((thread, stack)) = here else {
            self.recorder.lost(LostKind::Allocations, 1);
            self.recorder
                .lost(LostKind::CpuSamples, u64::from(missed_ticks));
            return;
        };
        for _ in 0..missed_ticks {
            self.recorder.cpu(CpuSample {
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
        if self.young.len() >= MOST_YOUNG {
            self.write_out();
        } else if let Some(oldest) = self.young.get(self.told)
            && time.0 - oldest.allocation.time.0 > PATIENCE.0
        {
            self.tell_types();
        }
        if self.young.try_reserve(1).is_err() {
            self.recorder.lost(LostKind::Allocations, 1);
            return;
        }
        self.young.push(young);
        if alone {
            self.pending_large += 1;
            self.minors_without_large = 0;
            self.watch(true);
        }
        let is_recent = |other: Nanos| time.0.saturating_sub(other.0) < UNANNOUNCED_FOR.0;
        let oldest = self.young.get(self.announced).unwrap_or(&young);
        let follows = self.sampled.replace(time).is_some_and(is_recent);
        let are_many = self.young.len() - self.announced >= MOST_UNANNOUNCED;
        if alone || !follows || are_many || !is_recent(oldest.allocation.time) {
            self.announce();
        }
    }

    /// Announces the samples that were not announced yet, as far as there is room.
    #[inline(never)]
    fn announce(&mut self) {
        while let Some(young) = self.young.get(self.announced)
            && self.recorder.announce(young.allocation)
        {
            self.announced += 1;
        }
    }

    /// A large object was allocated.
    pub fn large(&mut self, block: usize, size: usize) {
        // What the collection itself asks for is no object.
        if self.in_minor {
            return;
        }
        let points = self.nursery.outside(size);
        if points > 0 {
            guarded(|| self.sample(block, size, points, true));
        }
    }

    /// Whether to look at what is freed.
    fn watch(&mut self, on: bool) {
        if self.watching != on {
            self.watching = on;
            // If it fails: the fate of large objects is not known, or the hook passes everything on.
            self.frees.iter().for_each(|free| _ = free.turn(on));
        }
    }

    /// The collection that is under way frees a large block.
    pub fn freed(&mut self, block: usize) {
        if self.pending_large > 0 {
            let _ = self.young.iter_mut().any(|young| young.note_free(block));
        }
    }

    /// Looks after the session, and returns the time; after a fork, forgets what belongs to the parent.
    fn attend(&mut self) -> Nanos {
        let mut time = self.recorder.now();
        let generation = self.recorder.attend(time);
        if self.stacks.generation(generation) {
            self.begin_anew();
            time = self.recorder.now();
        }
        self.backlog.catch_up(&mut self.recorder, &mut self.types);
        time
    }

    /// This process is a child with a session of its own.
    #[cold]
    #[inline(never)]
    fn begin_anew(&mut self) {
        self.types.forget();
        self.statistics.forget();
        if let Some(majors) = &mut self.majors {
            majors.forget();
        }
        self.backlog = Backlog::default();
        self.sampled = None;
        self.nursery.forget_allocated();
        let young = std::mem::take(&mut self.young);
        self.none_waits(young);
    }

    /// Hands an event over, or keeps it until there is room.
    fn finish(&mut self, finished: Finished) {
        self.backlog
            .push(finished, &mut self.recorder, &mut self.types);
    }

    /// No sample waits any more; `young` is the list they were on.
    fn none_waits(&mut self, mut young: Vec<Young>) {
        young.clear();
        self.young = young;
        self.announced = 0;
        self.told = 0;
        self.pending_large = 0;
    }

    /// Records the waiting samples without their fates.
    #[cold]
    #[inline(never)]
    fn write_out(&mut self) {
        let mut young = std::mem::take(&mut self.young);
        for object in &mut young {
            self.look(object);
            self.finish(Finished::Sample(*object));
        }
        self.none_waits(young);
    }

    /// Announces the waiting samples with their types, each once, as far as there is room.
    #[cold]
    #[inline(never)]
    fn tell_types(&mut self) {
        while let Some(&(mut object)) = self.young.get(self.told) {
            self.look(&mut object);
            let type_id = self
                .types
                .id(&mut self.recorder, object.type_number, object.class);
            if !self.recorder.announce(object.finish(type_id)) {
                break;
            }
            self.told += 1;
        }
        self.announced = self.announced.max(self.told);
    }

    /// Finds out the type of a waiting sample. Its header has been written: it is older than the
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
    pub(super) fn settle(&mut self, started: Nanos) {
        let ended = self.attend();
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
                self.finish(Finished::Sample(*object));
            }
        }
        self.none_waits(young);
        self.minors_without_large += 1;
        if self.minors_without_large > WATCHED_MINORS {
            self.watch(false);
        }
        self.collected(CollectionKind::Minor, started..ended, None);
        let is_sweeping = self.majors.as_ref().map(Majors::is_sweeping);
        let allocated = self.nursery.allocated();
        self.statistics
            .memory(&mut self.recorder, ended, allocated, is_sweeping);
        self.stacks.ticks(&mut self.recorder);
    }

    /// A step of a major collection has ended, before which the collector was in this state.
    pub(super) fn step(&mut self, before: State, started: Nanos) {
        // A fork was noticed before: each step follows a minor collection.
        let times = started..self.recorder.now();
        let in_use = || self.statistics.in_use();
        let majors = self.majors.as_mut();
        let Some(step) = majors.and_then(|majors| majors.step(before, &times, in_use)) else {
            return;
        };
        if step.has_marked {
            self.stacks.code_freed();
        }
        self.collected(CollectionKind::MajorStep(step.phase), times.clone(), None);
        if let Some((began, left)) = step.ends {
            self.collected(CollectionKind::Major, began..times.end, left);
        }
    }

    /// Records a collection or a step of one, and the bytes that it left.
    fn collected(&mut self, kind: CollectionKind, times: Range<Nanos>, left: Option<u64>) {
        if let Some(thread) = self.stacks.thread(&mut self.recorder) {
            self.finish(Finished::Collection(Collection {
                start: times.start,
                duration: Nanos(times.end.0 - times.start.0),
                thread,
                kind,
                freed_objects: None,
                bytes_before: None,
                bytes_after: left,
            }));
        }
    }
}

/// Runs `work`; a panic must not pass through the interpreter's frames.
pub(super) fn guarded(work: impl FnOnce()) {
    if PANICKED.load(Ordering::Relaxed) {
        return;
    }
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        PANICKED.store(true, Ordering::Relaxed);
    }
}
