//! Native memory: samples of `malloc`, its relatives and `mmap`, or of a Rust program's global allocator.
//!
//! ```text
//! library for malloc ─ interface ─▶ observer ─┐
//!                                             ├─▶ sampled, freed ─ the host's thread and stack ─▶ Recording
//! global allocator ───────────────────────────┘     any thread, any lock held
//! ```
//!
//! An agent [connects](super::connect) to the library when its session has started, and disconnects before the session ends. A
//! host that samples its own requests calls [`begin`] and [`end`] instead, and [`sampled`] and [`freed`] in between.
//! Beginning and end are in the thread that starts or stops the session; samples come from all threads.
//!
//! A free that cannot be recorded at the moment, because another thread holds the session's lock, waits for the next
//! recording of native memory. A sample whose stack needs a look at files waits for the writer thread: see
//! [`Placed::Later`].

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU64};
use std::time::Duration;

use nthbyte_host::preload::{LAZY, NOT_INTERESTED};
use nthbyte_profile::event::{
    Allocation, LabelSetId, LostKind, NodeId, SampleId, SourceId, Survival, TypeId,
};
use nthbyte_profile::{Distances, Meta, Method, Source, SourceKind};

use super::libraries;
use super::postponed::Postponed;
use super::touched;
use super::unfinished::{self, FLAG};
use crate::begin::record_now;
use crate::contract::{Host, Placed};
use crate::guard::guarded;
use crate::recording::Recording;
use crate::registry::SessionSlot;
use crate::session::Session;

/// A sampled request.
#[derive(Clone, Copy, Debug)]
pub struct SampledRequest {
    /// The requested size, in bytes.
    pub size: u64,
    /// The period under which the sample point was drawn, in bytes.
    pub period: u64,
    /// The number of sample points in it; at least 1.
    pub points: u32,
    /// The function that was called: the sample's type.
    pub function: &'static str,
    /// Whether the memory is a mapping and no block of an allocator.
    pub is_mapping: bool,
    /// Where the memory begins, if it counts with its touched part. 0 if it counts as a whole.
    pub lazy: usize,
    /// The return address of the call, which is in progress in this thread; 0 if it does not matter.
    pub caller: usize,
}

/// Whether a sample, or a tick, may wait for its stack. If not, the host records what it has of it.
pub fn may_wait(recording: &mut Recording<'_>) -> bool {
    // After `end`, nobody completes it.
    !SESSION.load(Acquire).is_null() && unfinished::has_room(recording)
}

/// At the end, samples wait so many times this long.
const MOST_ROUNDS: u32 = 500;
const ROUND: Duration = Duration::from_millis(1);

/// The session that receives samples; null if none does. Slots are never freed.
static SESSION: AtomicPtr<SessionSlot> = AtomicPtr::new(std::ptr::null_mut());
/// The number of the source of allocator blocks. The one of mappings follows it.
static SOURCE: AtomicU16 = AtomicU16::new(0);
/// See [`count_whole_mappings`].
static ARE_WHOLE: AtomicBool = AtomicBool::new(false);
static POSTPONED: Postponed<64> = Postponed::new([const { AtomicU64::new(NOT_INTERESTED) }; 64]);

/// Adds the sources of native memory to the description of a session, after all others.
pub fn add_sources(meta: &mut Meta, method: Method, period: u64) {
    // A global allocator sees no mappings.
    let kinds: &[SourceKind] = match method {
        Method::GlobalAllocator => &[SourceKind::Native],
        _ => &[SourceKind::Native, SourceKind::Mapping],
    };
    for &kind in kinds {
        // Threads draw their distances independently, so equal ones would mean nothing.
        let distances = match meta.distances() {
            Distances::Fixed => Distances::Exponential,
            others => others,
        };
        let source = Source::allocations(kind, method, distances, period);
        meta.sources.push(source);
    }
}

/// Starts to record native memory in a session whose description has the sources. Returns the period. `None` if the
/// session does not record, or has no such source.
pub fn begin(session: &Session) -> Option<u64> {
    let (source, period) = session
        .record(LostKind::Other)
        .and_then(|recording| source_of(recording.meta()))?;
    // Of an earlier session.
    POSTPONED.take_all(|_| {});
    SOURCE.store(source, Relaxed);
    SESSION.store(std::ptr::from_ref(session.slot()).cast_mut(), Release);
    Some(period)
}

/// Whether mappings, and large blocks, count as a whole from their request on, and not with their touched part: in the session
/// that begins next.
pub fn count_whole_mappings(are_whole: bool) {
    ARE_WHOLE.store(are_whole, Relaxed);
}

/// Whether native memory is recorded.
pub(crate) fn is_recorded() -> bool {
    slot().is_some()
}

/// The host of the session, if native memory is recorded.
pub(crate) fn host() -> Option<&'static dyn Host> {
    slot().map(|slot| slot.host.host)
}

fn slot() -> Option<&'static SessionSlot> {
    // SAFETY: slots are never freed.
    unsafe { SESSION.load(Acquire).as_ref() }
}

/// Stops to record native memory: `stop` ends the sampling of requests. Samples that wait for their stacks are completed.
pub fn end(stop: impl FnOnce()) {
    let slot = SESSION.swap(std::ptr::null_mut(), AcqRel);
    // SAFETY: slots are never freed.
    if let Some(slot) = unsafe { slot.as_ref() } {
        stop();
        finish_waiting(slot.host.host);
    }
}

/// Records the frees that wait for a recording, and completes the samples that wait for their stacks, while the writer
/// thread makes room for them.
fn finish_waiting(host: &dyn Host) {
    let now = record_now().map(|recording| recording.now());
    if let Some(now) = now {
        touched::look(now, true);
    }
    for _ in 0..MOST_ROUNDS {
        host.prepare();
        let Some(mut recording) = record_now() else {
            return;
        };
        record_frees(&mut recording);
        if !unfinished::are_waiting(&mut recording) {
            return;
        }
        recording.wake_writer();
        drop(recording);
        std::thread::sleep(ROUND);
    }
    if let Some(mut recording) = record_now() {
        unfinished::give_up(&mut recording);
    }
}

/// The number of the source of blocks, and its period.
fn source_of(meta: &Meta) -> Option<(u16, u64)> {
    let at = meta
        .sources
        .iter()
        .position(|source| source.kind() == Some(SourceKind::Native))?;
    Some((u16::try_from(at).ok()?, meta.sources[at].period))
}

/// The session, if native memory is recorded.
fn session() -> Option<Session> {
    slot().map(Session::of_slot)
}

/// Records a sampled request, whose thread and stack `place` tells. Returns a token for [`freed`], or
/// [`NOT_INTERESTED`]. `is_own` says whether the request is the host's own; it is asked before each sample is recorded.
///
/// It runs inside of the request, in any thread, with any lock of the program held. What `place` allocates must not be
/// sampled. There is one call of `place` at a time, because the recording is borrowed.
#[inline]
pub fn sampled(
    sample: &SampledRequest,
    is_own: impl FnOnce() -> bool,
    place: impl FnOnce(&mut Recording<'_>) -> Option<Placed>,
) -> u64 {
    guarded(|| {
        let session = std::mem::ManuallyDrop::new(session()?);
        // The agent itself has called a function that allocates: it is not the program's memory.
        if session.slot().lock.is_held_by_caller() || is_own() {
            return None;
        }
        let mut recording = session.record(LostKind::Allocations)?;
        record_frees(&mut recording);
        let recorded =
            place(&mut recording).and_then(|placed| record(&mut recording, sample, placed));
        if recorded.is_none() {
            recording.lost(LostKind::Allocations, 1);
        }
        recorded
    })
    .flatten()
    .unwrap_or(NOT_INTERESTED)
}

/// The type of a sample: the function, and the installed library that called it, or its package; then the function as the type's
/// own name. An installed library that maps memory has an allocator of its own, most of the time.
fn type_of(recording: &mut Recording<'_>, sample: &SampledRequest) -> Option<TypeId> {
    let function = sample.function;
    let library = match sample.caller {
        0 => None,
        // SAFETY: the call is in progress: `SampledRequest::caller`.
        caller => unsafe { libraries::of_caller(recording, caller) },
    };
    let library = library.filter(|of| of.is_installed && !of.serves_others);
    let name = match library {
        Some(library) if sample.is_mapping => Some(library.mappings.as_str()),
        Some(library) => library.blocks_by(function),
        None => None,
    };
    match name {
        Some(name) => recording.own_named_type(name, function),
        None => recording.named_type(function),
    }
}

/// Records a sample, or keeps it until its stack is complete. Returns its token: the epoch, and the number of the sample
/// or of its place.
fn record(recording: &mut Recording<'_>, sample: &SampledRequest, placed: Placed) -> Option<u64> {
    let (thread, stack, later) = match placed {
        Placed::Now(thread, stack) => (thread, stack, None),
        Placed::Later(thread, stack) => (thread, NodeId::ROOT, Some(stack)),
    };
    let type_id = type_of(recording, sample)?;
    let labels = match host() {
        Some(host) => host.labels(recording)?,
        None => LabelSetId::NONE,
    };
    let source = SOURCE.load(Relaxed) + u16::from(sample.is_mapping);
    let time = recording.now();
    let allocation = Allocation {
        time,
        thread,
        stack,
        size: sample.size,
        block: sample.size,
        points: sample.points,
        type_id,
        labels,
        source: SourceId(source),
        survival: Survival::Unsaid,
    };
    let epoch = recording.epoch().number();
    if sample.lazy != 0
        && !ARE_WHOLE.load(Relaxed)
        && let Some(end) = sample.lazy.checked_add(sample.size as usize)
        && let Some(number) = touched::add(
            recording,
            allocation,
            sample.period,
            sample.lazy..end,
            later.is_none(),
        )
    {
        if let Some(stack) = later {
            unfinished::add_mapping(recording, number, stack);
        }
        return Some(u64::from(epoch) << 32 | LAZY | u64::from(number));
    }
    if let Some(stack) = later {
        let at = unfinished::add(recording, allocation, sample.period, stack);
        return Some(u64::from(epoch | FLAG) << 32 | u64::from(at));
    }
    let recorded = recording.allocation(allocation, sample.period);
    // `allocation` has counted a loss.
    Some(recorded.map_or(NOT_INTERESTED, |sample| {
        u64::from(epoch & !FLAG) << 32 | u64::from(sample.0)
    }))
}

/// Counts a sampled request that could not be recorded.
pub fn lost() {
    if let Some(session) = session() {
        std::mem::ManuallyDrop::new(session).lost(LostKind::Allocations, 1);
    }
}

/// Records that the memory of a sample with this token is being freed or resized. It runs as [`sampled`] does.
pub fn freed(token: u64) {
    guarded(|| {
        let session = std::mem::ManuallyDrop::new(session()?);
        if let Some(mut recording) = session.try_record() {
            record_frees(&mut recording);
            record_free(&mut recording, token);
        } else if !POSTPONED.add(token) {
            session.lost(LostKind::Other, 1);
        }
        Some(())
    });
}

/// Looks at memory that counts with its touched part, and is about to be freed or resized. It runs as [`sampled`] does.
pub fn look(token: u64) {
    guarded(|| {
        if may_look() && token & LAZY != 0 && token != NOT_INTERESTED {
            touched::look_at(token as u32);
        }
        Some(())
    });
}

/// Looks at addresses that are about to be unmapped. Returns whether that was possible. It runs as [`sampled`] does.
pub fn unmap(range: &std::ops::Range<usize>) -> bool {
    guarded(|| may_look() && touched::unmap(range)).unwrap_or(false)
}

/// Whether there is a session, and no recording of this thread.
fn may_look() -> bool {
    session().is_some_and(|session| {
        !std::mem::ManuallyDrop::new(session)
            .slot()
            .lock
            .is_held_by_caller()
    })
}

fn record_free(recording: &mut Recording<'_>, token: u64) {
    // In the child of a fork, the parent's blocks belong to the parent's profile.
    let (half, number) = ((token >> 32) as u32, token as u32);
    let flags = FLAG | touched::FLAG;
    if half & !flags != recording.epoch().number() & !flags {
        return;
    }
    let time = recording.now();
    if half & touched::FLAG != 0 {
        touched::freed(recording, number, time);
    } else if half & FLAG == 0 {
        recording.freed(SampleId(number), time);
    } else {
        unfinished::freed(recording, number, time);
    }
}

fn record_frees(recording: &mut Recording<'_>) {
    POSTPONED.take_all(|token| record_free(recording, token));
}
