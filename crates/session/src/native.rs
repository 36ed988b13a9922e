//! Native memory: samples of `malloc`, its relatives and `mmap`, from the library `nthbyte-native`, which the process
//! has preloaded.
//!
//! ```text
//! preloaded library ─ interface ─▶ connect ─ the host's `Place` ─▶ Recording
//!   any thread, any lock held         this module                  thread and stack
//! ```
//!
//! The agent connects when its session has started, and disconnects before it ends. Both in the thread that starts or
//! stops the session; samples come from all threads.
//!
//! A free that cannot be recorded at the moment, because another thread holds the session's lock, waits for the next
//! recording of native memory. A sample whose stack needs a look at files waits for the writer thread: see
//! [`Placed::Later`].

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64};
use std::time::Duration;

use nthbyte_profile::event::{
    Allocation, LabelSetId, LostKind, NodeId, SampleId, SourceId, Survival, ThreadId,
};
use nthbyte_profile::{Distances, Meta, Method, Source, SourceKind};

pub use crate::preload::{
    Interface, Kind, MOST_RANGES, NOT_INTERESTED, Observer, Request, SYMBOL, Settings, VERSION,
    interface, load, unobserved,
};

use crate::guard::guarded;
use crate::postponed::Postponed;
use crate::process::image;
use crate::recording::Recording;
use crate::registry::Slot;
use crate::session::Session;
use crate::unfinished::{self, FLAG};
use crate::{keeper, recording};

pub use crate::unfinished::{Unfinished, are_waiting, complete};

/// Tells the thread and the stack of the calling thread. `None` if there is no room to record them.
///
/// It runs inside of a call of `malloc` or `mmap`, in any thread, with any lock of the program held. There is one call
/// at a time, because the recording is borrowed.
pub type Place = fn(&mut Recording<'_>) -> Option<Placed>;

/// A thread, and its stack.
pub enum Placed {
    /// Both are known.
    Now(ThreadId, NodeId),
    /// The stack is completed by [`complete`]. Only if [`may_wait`] has allowed it.
    Later(ThreadId, Box<dyn Unfinished>),
}

/// Whether a sample, or a tick, may wait for its stack. If not, the host records what it has of it.
pub fn may_wait(recording: &mut Recording<'_>) -> bool {
    // After `disconnect`, nobody completes it.
    !SESSION.load(Acquire).is_null() && unfinished::has_room(recording)
}

/// At the end, samples wait so many times this long.
const MOST_ROUNDS: u32 = 500;
const ROUND: Duration = Duration::from_millis(1);

/// The session that receives samples; null if none does. Slots are never freed.
static SESSION: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
/// The host's function, of type [`Place`].
static PLACE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Tells whether a request of the calling thread is the host's own. Called before each sample is recorded.
pub type IsOwn = fn(&Request) -> bool;

/// The host's function, of type [`IsOwn`].
static IS_OWN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The function [`Interface::set_period`]; null if native memory is not recorded.
static SET_PERIOD: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The number of the source of allocator blocks. That of mappings follows it.
static SOURCE: AtomicU16 = AtomicU16::new(0);
static POSTPONED: Postponed<64> = Postponed::new([const { AtomicU64::new(NOT_INTERESTED) }; 64]);

/// Whether this process has the library, so that native memory can be sampled.
#[must_use]
pub fn is_available() -> bool {
    interface().is_some()
}

/// Adds the sources of native memory to the description of a session, after all others.
pub fn add_sources(meta: &mut Meta, period: u64) {
    for kind in [SourceKind::Native, SourceKind::Mapping] {
        // Threads draw their distances independently, so equal ones would mean nothing.
        let distances = match meta.distances() {
            Distances::Fixed => Distances::Exponential,
            others => others,
        };
        let source = Source::allocations(kind, Method::Preload, distances, period);
        meta.sources.push(source);
    }
}

/// Starts to record native memory in a session whose description has the sources. `excluded` are starts and ends of
/// code whose requests are not the program's, two at most; this library's own and the dynamic linker's always are. Returns false if the library is
/// not there.
pub fn connect(
    session: &Session,
    seed: u64,
    place: Place,
    is_own: IsOwn,
    excluded: &[[usize; 2]],
) -> bool {
    let Some(interface) = interface() else {
        return false;
    };
    let Some((source, period)) = session
        .record(LostKind::Other)
        .and_then(|recording| source_of(recording.meta()))
    else {
        return false;
    };
    // Those of an earlier session.
    POSTPONED.take_all(|_| {});
    SOURCE.store(source, Relaxed);
    PLACE.store(place as *mut (), Relaxed);
    IS_OWN.store(is_own as *mut (), Relaxed);
    SESSION.store(std::ptr::from_ref(session.slot()).cast_mut(), Release);
    let mut ranges = [[0; 2]; MOST_RANGES];
    let own = image::range(sampled as *const () as usize);
    for (range, given) in ranges
        .iter_mut()
        .zip([own, dynamic_linker()].iter().chain(excluded))
    {
        *range = *given;
    }
    let settings = Settings {
        period,
        seed,
        excluded: ranges,
        observer: Observer { sampled, freed },
    };
    // SAFETY: the function of the interface, with live arguments.
    unsafe { (interface.connect)(&settings) };
    SET_PERIOD.store(interface.set_period as *mut (), Release);
    true
}

/// Sets the period of native memory, if it is recorded. Threads have it from their next sample on.
pub(crate) fn set_period(period: u64) {
    let function = SET_PERIOD.load(Acquire);
    if !function.is_null() {
        // SAFETY: the function of the interface, which has this type.
        unsafe { std::mem::transmute::<*mut (), unsafe extern "C" fn(u64)>(function)(period) };
    }
}

/// Stops to record native memory.
pub fn disconnect() {
    if SESSION.swap(std::ptr::null_mut(), Release).is_null() {
        return;
    }
    SET_PERIOD.store(std::ptr::null_mut(), Release);
    if let Some(interface) = interface() {
        // SAFETY: the function of the interface.
        unsafe { (interface.disconnect)() };
    }
    finish_waiting();
}

/// Completes the samples that wait for their stacks, while the writer thread makes room for them.
fn finish_waiting() {
    for _ in 0..MOST_ROUNDS {
        keeper::prepare();
        let Some(mut recording) = recording::record_now() else {
            return;
        };
        if !unfinished::are_waiting(&mut recording) {
            return;
        }
        recording.wake_writer();
        drop(recording);
        std::thread::sleep(ROUND);
    }
    if let Some(mut recording) = recording::record_now() {
        unfinished::give_up(&mut recording);
    }
}

/// The code of the dynamic linker. What it allocates (thread-local variables of libraries, its lists) is the system's.
fn dynamic_linker() -> [usize; 2] {
    // SAFETY: no preconditions.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    usize::try_from(base).map_or([0; 2], |base| {
        if base == 0 {
            [0; 2]
        } else {
            image::range(base)
        }
    })
}

/// The number of the source of blocks, and its period.
fn source_of(meta: &Meta) -> Option<(u16, u64)> {
    let at = meta
        .sources
        .iter()
        .position(|source| source.kind() == Some(SourceKind::Native))?;
    Some((u16::try_from(at).ok()?, meta.sources[at].period))
}

/// The system's name of the calling thread.
#[must_use]
pub fn name_of_thread() -> Option<String> {
    let mut name = [0_u8; 16];
    // SAFETY: the call writes 16 bytes at most.
    let failed = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } != 0;
    let text = name.split(|&byte| byte == 0).next()?;
    (!failed && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// The session, if native memory is recorded.
fn session() -> Option<Session> {
    // SAFETY: slots are never freed.
    let slot = unsafe { SESSION.load(Acquire).as_ref() }?;
    Some(Session::of_slot(slot))
}

unsafe extern "C" fn sampled(request: &Request) -> u64 {
    guarded(|| {
        let session = std::mem::ManuallyDrop::new(session()?);
        // The agent itself has called a function that allocates: it is not the program's memory.
        if session.slot().lock.is_held_by_caller() || is_own(request) {
            return None;
        }
        let mut recording = session.record(LostKind::Allocations)?;
        record_frees(&mut recording);
        let recorded = record(&mut recording, request);
        if recorded.is_none() {
            recording.lost(LostKind::Allocations, 1);
        }
        recorded
    })
    .flatten()
    .unwrap_or(NOT_INTERESTED)
}

fn is_own(request: &Request) -> bool {
    let function = IS_OWN.load(Relaxed);
    // SAFETY: a function of this type was stored.
    !function.is_null() && unsafe { std::mem::transmute::<*mut (), IsOwn>(function)(request) }
}

/// Records a sample, or keeps it until its stack is complete. Returns its token: the epoch, and the number of the sample
/// or of its place.
fn record(recording: &mut Recording<'_>, request: &Request) -> Option<u64> {
    let place = PLACE.load(Relaxed);
    if place.is_null() {
        return None;
    }
    // SAFETY: a function of this type was stored.
    let place = unsafe { std::mem::transmute::<*mut (), Place>(place) };
    let (thread, stack, later) = match place(recording)? {
        Placed::Now(thread, stack) => (thread, stack, None),
        Placed::Later(thread, stack) => (thread, NodeId::ROOT, Some(stack)),
    };
    let type_id = recording.named_type(request.kind.name())?;
    let source = SOURCE.load(Relaxed) + u16::from(request.kind.is_mapping());
    let time = recording.now();
    let allocation = Allocation {
        time,
        thread,
        stack,
        size: request.size,
        block: request.size,
        points: request.points,
        type_id,
        labels: LabelSetId::NONE,
        source: SourceId(source),
        survival: Survival::Unsaid,
    };
    let epoch = recording.epoch().number();
    if let Some(stack) = later {
        let at = unfinished::add(recording, allocation, request.period, stack);
        return Some(u64::from(epoch | FLAG) << 32 | u64::from(at));
    }
    let sample = recording.allocation(allocation, request.period);
    // `allocation` has counted a loss.
    Some(sample.map_or(NOT_INTERESTED, |sample| {
        u64::from(epoch & !FLAG) << 32 | u64::from(sample.0)
    }))
}

unsafe extern "C" fn freed(token: u64) {
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

fn record_free(recording: &mut Recording<'_>, token: u64) {
    // In the child of a fork, the parent's blocks belong to the parent's profile.
    let (half, number) = ((token >> 32) as u32, token as u32);
    if half & !FLAG != recording.epoch().number() & !FLAG {
        return;
    }
    let time = recording.now();
    if half & FLAG == 0 {
        recording.freed(SampleId(number), time);
    } else {
        unfinished::freed(recording, number, time);
    }
}

fn record_frees(recording: &mut Recording<'_>) {
    POSTPONED.take_all(|token| record_free(recording, token));
}
