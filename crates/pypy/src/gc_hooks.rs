//! Where the hook cannot be placed: one sample at every k-th minor collection.
//!
//! PyPy tells of each minor collection through `gc.hooks`, from Python code that runs at the next
//! bytecode; that code's stack is near enough to the allocation that filled the nursery. The period is
//! the nursery's size, or a multiple of it (the paper's remark on Guile's statistical profiler, section 7).
//! Neither size, nor type, nor fate of an object is known.
//!
//! Python calls these functions without the interpreter's lock, so the session has a lock of its own.

use std::sync::Mutex;

use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, FrameKind, Lines, Memory, Nanos, Node,
    NodeId, Survival, Thread, ThreadId, TypeId,
};
use nthbyte_profile::{Distances, Method};
use rustc_hash::FxHashMap;

use nthbyte_session::{Config, Outcome, Recorder};

struct Session {
    recorder: Recorder,
    codes: FxHashMap<String, CodeId>,
    threads: FxHashMap<u64, ThreadId>,
    nursery: u64,
    every: u64,
    /// Minor collections so far.
    collections: u64,
    generation: u32,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Whether a session of this kind is on.
pub fn is_on() -> bool {
    SESSION.lock().is_ok_and(|session| session.is_some())
}

/// Starts a session with the nursery's size that Python tells.
///
/// # Errors
/// One line that says what is wrong.
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
    (meta.period, meta.distances) = (every * nursery, Distances::Fixed);
    let recorder = Recorder::start(config, meta)?;
    let mut session = SESSION
        .lock()
        .map_err(|_| "an earlier session failed".to_owned())?;
    *session = Some(Session {
        recorder,
        codes: FxHashMap::default(),
        threads: FxHashMap::default(),
        nursery,
        every,
        collections: 0,
        generation: 0,
    });
    Ok(())
}

/// Ends the session: what came of it; the bytes allocated are known to the nursery's size.
pub fn stop() -> Option<Outcome> {
    let session = SESSION.lock().ok()?.take()?;
    let allocated = session.collections * session.nursery;
    Some(session.recorder.finish(Some(allocated)))
}

impl Session {
    /// `count` minor collections took so long; the innermost frame's line comes first in `stack`, each
    /// `line first_line name<TAB>file`.
    fn minor(
        &mut self,
        count: u64,
        took: Nanos,
        used: Option<u64>,
        os_thread: u64,
        stack: &str,
    ) -> Option<()> {
        let now = self.recorder.now();
        let generation = self.recorder.attend(now);
        if generation != self.generation {
            self.generation = generation;
            self.codes.clear();
            self.threads.clear();
        }
        let thread = match self.threads.get(&os_thread) {
            Some(&known) => known,
            None => {
                let defined = self.recorder.thread(&Thread {
                    os_id: os_thread,
                    name: "",
                })?;
                self.threads.insert(os_thread, defined);
                defined
            }
        };
        let before = self.collections / self.every;
        self.collections += count;
        let points = self.collections / self.every - before;
        if points > 0 {
            let stack = self.stack(stack)?;
            let bytes = self.every * self.nursery;
            self.recorder.allocation(Allocation {
                time: now,
                thread,
                stack,
                size: bytes,
                block: bytes,
                points: u32::try_from(points).unwrap_or(u32::MAX),
                type_id: TypeId::UNKNOWN,
                survival: Survival::Unsaid,
            });
        }
        self.recorder.collection(Collection {
            start: Nanos(now.0.saturating_sub(took.0)),
            duration: took,
            thread,
            kind: CollectionKind::Minor,
            freed_objects: None,
            bytes_before: None,
            bytes_after: used,
        });
        self.recorder.memory(Memory {
            time: now,
            heap_used: used,
            heap_reserved: None,
            rss: None,
            allocated: Some(self.collections * self.nursery),
        });
        Some(())
    }

    fn stack(&mut self, text: &str) -> Option<NodeId> {
        let mut parent = NodeId::ROOT;
        for frame in text.lines().rev() {
            let (line, rest) = frame.split_once(' ')?;
            let code = match self.codes.get(rest) {
                Some(&known) => known,
                None => {
                    let (first_line, names) = rest.split_once(' ')?;
                    let (name, file) = names.split_once('\t')?;
                    let first_line = first_line.parse().unwrap_or(0);
                    let defined = self.recorder.code(&Code {
                        name,
                        file,
                        first_line,
                        lines: Lines::Direct,
                    })?;
                    self.codes.insert(rest.to_owned(), defined);
                    defined
                }
            };
            let position = line.parse().unwrap_or(0);
            parent = self.recorder.node(Node {
                parent,
                code,
                position,
                kind: FrameKind::Interpreted,
            })?;
        }
        Some(parent)
    }
}

/// Records `count` minor collections, which took so many nanoseconds and left `used` bytes, in this thread with this
/// stack: a line for each frame, innermost first, `line first_line name<TAB>file`.
pub fn report_minors(count: u64, nanoseconds: u64, used: Option<u64>, os_thread: u64, stack: &str) {
    if let Ok(mut session) = SESSION.lock()
        && let Some(session) = session.as_mut()
    {
        // Without room in the ring the sample is lost, and counted by the recorder.
        let _ = session.minor(count, Nanos(nanoseconds), used, os_thread, stack);
    }
}

/// How many minor collections make one sample; `None` if no session of this kind is on.
pub fn minors_per_sample() -> Option<u64> {
    let session = SESSION.lock().ok()?;
    session.as_ref().map(|session| session.every)
}
