//! The method for processes in which the hook cannot be placed: one sample at every k-th minor collection.
//!
//! PyPy reports each minor collection through `gc.hooks`, by a call of Python code at the next bytecode. The
//! stack of that code is close to the allocation that filled the nursery. The period is the nursery's size, or
//! a multiple of it (the paper's remark on Guile's statistical profiler, section 7). Size, type and lifetime
//! of the objects are not known.
//!
//! Python calls these functions without the interpreter's lock, so the counters here have a lock of their own.

use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nthbyte_host::BoundedLock;
use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, FrameKind, LabelSetId, Lines, LostKind,
    Memory, Nanos, Node, NodeId, SourceId, Survival, TypeId,
};
use nthbyte_profile::{Distances, Method, Source};
use nthbyte_session::{
    Config, Counted, KeyMap, Mark, PerEpoch, Recording, Session, SessionOutcome, guarded,
};

use crate::host::HOST;

struct Sampling {
    session: Session,
    /// Code objects by first line, name and file.
    codes: PerEpoch<KeyMap<String, CodeId>>,
    nursery: u64,
    every: u64,
    /// Number of minor collections in this process until now.
    collections: PerEpoch<u64>,
    /// Those that are not among them, because nothing could be recorded.
    uncounted: u64,
}

static SESSION: BoundedLock<Option<Sampling>> = BoundedLock::new(None);

/// The longest wait for another thread. In the child of a fork, the owner of the lock may be a thread that does not
/// exist in the child.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait after one in vain.
const SHORT_WAIT: Duration = Duration::from_millis(10);
/// A waiting thread sleeps so long each time.
const PAUSE: Duration = Duration::from_micros(50);
/// Whether the last wait was in vain.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// Whether a session of this kind is on.
pub fn is_on() -> bool {
    lock().is_some_and(|sampling| sampling.is_some())
}

/// Locks the state. `None` if another thread holds the lock too long, or an earlier session
/// panicked.
fn lock() -> Option<MutexGuard<'static, Option<Sampling>>> {
    let longest = if IN_VAIN.load(Relaxed) {
        SHORT_WAIT
    } else {
        LONGEST_WAIT
    };
    let locked = SESSION.lock_within(longest, || std::thread::sleep(PAUSE));
    IN_VAIN.store(locked.is_none(), Relaxed);
    locked
}

/// Starts a session. Python passes the nursery's size.
///
/// # Errors
/// One line that says why not.
pub fn start(config: &Config) -> Result<(), String> {
    let nursery = config
        .pypy
        .get("nursery")
        .and_then(serde_json::Value::as_u64);
    let nursery = nursery
        .filter(|&size| size > 0)
        .ok_or("PyPy does not tell the size of its nursery")?;
    let notes = config
        .pypy
        .get("notes")
        .and_then(serde_json::Value::as_array);
    let notes = notes
        .into_iter()
        .flatten()
        .filter_map(|note| note.as_str().map(str::to_owned))
        .collect();
    let every = (config.period / nursery).max(1);
    let mut meta = config.meta(Method::GcHooks, config.seed(), notes);
    meta.sources = Source::of_session(
        Method::GcHooks,
        Distances::Fixed,
        every * nursery,
        config.cpu_hz,
    );
    let session = Session::start(config, meta, &HOST)?;
    let mut place = lock().ok_or("an earlier session failed")?;
    *place = Some(Sampling {
        session,
        codes: PerEpoch::default(),
        nursery,
        every,
        collections: PerEpoch::default(),
        uncounted: 0,
    });
    Ok(())
}

/// Ends the session and returns its result. The number of allocated bytes has an error of at most
/// the nursery's size.
pub fn stop() -> Option<SessionOutcome> {
    let mut sampling = lock()?.take()?;
    let epoch = sampling
        .session
        .record(LostKind::Other)
        .map(|recording| recording.epoch());
    let allocated = epoch
        .map(|epoch| (*sampling.collections.of(epoch) + sampling.uncounted) * sampling.nursery);
    let counted = allocated.map(|allocated| Counted {
        allocated,
        blocks: None,
    });
    Some(sampling.session.finish(counted))
}

/// What was recorded so far.
pub fn mark() -> Option<Mark> {
    let mut sampling = lock()?;
    let sampling = sampling.as_mut()?;
    let recording = sampling.session.record(LostKind::Other)?;
    let collections = *sampling.collections.of(recording.epoch());
    Some(Mark {
        allocated: Some(collections * sampling.nursery),
        ..recording.mark()
    })
}

impl Sampling {
    /// Records `count` minor collections and their duration. `stack` has a line for each frame,
    /// innermost first: `line first_line name<TAB>file`.
    fn minor(
        &mut self,
        count: u64,
        took: Nanos,
        used: Option<u64>,
        os_thread: u64,
        stack: &str,
    ) -> Option<()> {
        let Some(mut recording) = self.session.record(LostKind::Allocations) else {
            self.uncounted += count;
            return None;
        };
        let now = recording.now();
        let collections = self.collections.of(recording.epoch());
        let before = *collections / self.every;
        *collections += count + std::mem::take(&mut self.uncounted);
        let collections = *collections;
        let points = collections / self.every - before;
        let thread = recording.thread(os_thread)?;
        if points > 0 {
            let stack = node_of(&mut recording, &mut self.codes, stack)?;
            let bytes = self.every * self.nursery;
            let allocation = Allocation {
                time: now,
                thread,
                stack,
                size: bytes,
                block: bytes,
                points: u32::try_from(points).unwrap_or(u32::MAX),
                type_id: TypeId::UNKNOWN,
                survival: Survival::Unsaid,
                labels: LabelSetId::NONE,
                source: SourceId::ALLOCATIONS,
            };
            recording.allocation(allocation, bytes);
        }
        recording.collection(Collection {
            start: Nanos(now.0.saturating_sub(took.0)),
            duration: took,
            thread,
            kind: CollectionKind::Minor,
            freed_objects: None,
            bytes_before: None,
            bytes_after: used,
        });
        recording.memory(Memory {
            time: now,
            heap_used: used,
            heap_reserved: None,
            rss: None,
            allocated: Some(collections * self.nursery),
            peak_rss: None,
        });
        Some(())
    }
}

fn node_of(
    recording: &mut Recording<'_>,
    codes: &mut PerEpoch<KeyMap<String, CodeId>>,
    stack: &str,
) -> Option<NodeId> {
    let codes = codes.of(recording.definitions());
    let mut parent = NodeId::ROOT;
    for frame in stack.lines().rev() {
        let (line, rest) = frame.split_once(' ')?;
        let code = match codes.get(rest) {
            Some(&known) => known,
            None => {
                let (first_line, names) = rest.split_once(' ')?;
                let (name, file) = names.split_once('\t')?;
                let first_line = first_line.parse().unwrap_or(0);
                let defined = recording.code(&Code {
                    name,
                    file,
                    first_line,
                    lines: Lines::Direct,
                })?;
                codes.insert(rest.to_owned(), defined);
                defined
            }
        };
        let position = line.parse().unwrap_or(0);
        parent = recording.node(Node {
            parent,
            code,
            position,
            kind: FrameKind::Interpreted,
        })?;
    }
    Some(parent)
}

/// Records `count` minor collections in this thread. `nanoseconds` is their duration, and `used` the bytes in use
/// after them. `stack` has a line for each frame, innermost first: `line first_line name<TAB>file`.
pub fn report_minors(count: u64, nanoseconds: u64, used: Option<u64>, os_thread: u64, stack: &str) {
    guarded(|| {
        let mut sampling = lock()?;
        // Without room in the ring the sample is lost, and the session counts it as lost.
        let sampling = sampling.as_mut()?;
        sampling.minor(count, Nanos(nanoseconds), used, os_thread, stack)
    });
}

/// The number of minor collections for each sample; `None` if no session of this kind is on.
pub fn minors_per_sample() -> Option<u64> {
    lock()?.as_ref().map(|sampling| sampling.every)
}
