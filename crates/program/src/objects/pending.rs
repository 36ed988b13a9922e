//! Samples of objects until the next minor collection, which shows their types, and whether they survive. Only a thread with a
//! recording uses them: the collector's, or the one that ends the session.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use nthbyte_host::probes;
use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, LabelSetId, LostKind, Nanos, SourceId, Survival,
    TypeId, TypeName,
};
use nthbyte_rpython::PendingSample;
use nthbyte_rpython::backlog::{Backlog, Finished, TypeIds};
use nthbyte_sampling::Weight;
use nthbyte_session::{PerEpoch, Recording, RecordingCell, record_for};

use super::collecting::is_collecting;

/// If more samples than this are pending, they are recorded before the next minor collection.
const MOST_PENDING: usize = 1 << 18;
/// Objects whose headers are fetched into the cache together.
const FETCHED_TOGETHER: usize = 16;

#[derive(Default)]
struct Pending {
    samples: Vec<PendingSample>,
    backlog: Backlog,
    /// Collections that were seen, of [`MISSED`].
    missed: u64,
}

static PENDING: RecordingCell<PerEpoch<Pending>> = RecordingCell::new(PerEpoch::new(Pending {
    samples: Vec::new(),
    backlog: Backlog::new(),
    missed: 0,
}));
/// Minor collections that nothing was recorded of: the objects that were pending then may lie elsewhere now.
static MISSED: AtomicU64 = AtomicU64::new(0);
/// Whether the session has ended.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether the session has ended.
pub fn is_over() -> bool {
    IS_OVER.load(Relaxed)
}

/// Takes a sample of the object at this address, which is not initialised yet.
pub fn sample(recording: &mut Recording<'_>, object: usize, size: usize, points: u32, period: u64) {
    let Some((thread, stack)) = nthbyte_process::place_now(recording) else {
        recording.lost(LostKind::Allocations, 1);
        return;
    };
    let allocation = Allocation {
        time: recording.now(),
        thread,
        stack,
        size: size as u64,
        block: size as u64,
        points,
        type_id: TypeId::UNKNOWN,
        survival: Survival::Unsaid,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
    };
    with(recording, |pending, recording| {
        if pending.samples.len() >= MOST_PENDING {
            // All of them are initialised, but for none of them a collection has begun.
            pending.write_out(recording, true);
        }
        if pending.samples.try_reserve(1).is_err() {
            recording.lost(LostKind::Allocations, 1);
            return;
        }
        pending
            .samples
            .push(PendingSample::in_nursery(object, allocation, period));
        let bytes = size as u64;
        probes::allocated(object, bytes, || {
            let distances = recording.meta().distances();
            Weight::of(distances, period, bytes, bytes, points).bytes
        });
        // If the process is killed, the profile has it as it is now.
        recording.publish_provisionally(allocation, period);
    });
}

/// Called after a minor collection that began at this time.
pub fn settle(recording: &mut Recording<'_>, started: u64) {
    // In the child of a fork, the profile's clock begins later.
    let times = recording.at(started).min(recording.now())..recording.now();
    with(recording, |pending, recording| {
        let mut samples = std::mem::take(&mut pending.samples);
        for together in samples.chunks_mut(FETCHED_TOGETHER) {
            together.iter().for_each(PendingSample::prefetch);
            for object in together {
                // SAFETY: the collection has just ended, and nothing was allocated since.
                unsafe { object.resolve() };
                pending
                    .backlog
                    .push(Finished::Sample(*object), recording, &mut Numbers);
            }
        }
        samples.clear();
        pending.samples = samples;
    });
    collected(recording, CollectionKind::Minor, times);
}

/// Called in place of [`settle`] if nothing can be recorded.
pub fn miss_collection() {
    MISSED.fetch_add(1, Relaxed);
}

/// Records a collection or a step of one.
pub fn collected(recording: &mut Recording<'_>, kind: CollectionKind, times: Range<Nanos>) {
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    let Some(thread) = recording.thread_named_by_system(os_id) else {
        return;
    };
    let collection = Collection {
        start: times.start,
        duration: Nanos(times.end.0 - times.start.0),
        thread,
        kind,
        freed_objects: None,
        bytes_before: None,
        bytes_after: None,
    };
    with(recording, |pending, recording| {
        pending
            .backlog
            .push(Finished::Collection(collection), recording, &mut Numbers);
    });
}

/// Records the pending samples, at the end of the session, in any thread. It is not known whether their objects survive.
pub fn end() {
    IS_OVER.store(true, Release);
    if let Some(mut recording) = record_for(LostKind::Other) {
        with(&mut recording, |pending, recording| {
            pending.write_out(recording, !is_collecting());
        });
    }
    nthbyte_rpython::backlog::drain(
        || record_for(LostKind::Other),
        |recording| {
            with(recording, |pending, recording| {
                pending.backlog.catch_up(recording, &mut Numbers);
                pending.backlog.len()
            })
        },
    );
}

/// Calls `work` with this profile's pending samples. What the parent of a fork has left is its own.
fn with<T>(
    recording: &mut Recording<'_>,
    work: impl FnOnce(&mut Pending, &mut Recording<'_>) -> T,
) -> T {
    let epoch = recording.epoch();
    // SAFETY: this thread has the recording as long as the reference is used, and none of the uses is inside of another.
    let pending = unsafe { PENDING.beside_recording() }.of(epoch);
    let missed = MISSED.load(Relaxed);
    if std::mem::replace(&mut pending.missed, missed) != missed {
        recording.lost(LostKind::Allocations, pending.samples.len() as u64);
        pending.samples.clear();
    }
    pending.backlog.catch_up(recording, &mut Numbers);
    work(pending, recording)
}

impl Pending {
    /// Records all samples, as objects of which it is not known whether they survive.
    #[cold]
    fn write_out(&mut self, recording: &mut Recording<'_>, have_headers: bool) {
        let mut samples = std::mem::take(&mut self.samples);
        let last = samples.len().saturating_sub(1);
        for (at, object) in samples.iter_mut().enumerate() {
            // The last one may not be initialised yet.
            if have_headers && at < last {
                // SAFETY: no collection has begun since the allocation.
                unsafe { object.read_type() };
            }
            self.backlog
                .push(Finished::Sample(*object), recording, &mut Numbers);
        }
        samples.clear();
        self.samples = samples;
    }
}

/// Types are named by their numbers: the program has no names for them.
struct Numbers;

impl TypeIds for Numbers {
    fn id(&mut self, recording: &mut Recording<'_>, number: u32, _: Option<u32>) -> TypeId {
        if number == 0 {
            return TypeId::UNKNOWN;
        }
        if let Some(known) = recording.known_type(number.into()) {
            return known.id;
        }
        let name = format!("type {number:#x}");
        let name = TypeName {
            name: &name,
            native: "",
        };
        recording
            .define_type(number.into(), &name, 0)
            .map_or(TypeId::UNKNOWN, |known| known.id)
    }
}
