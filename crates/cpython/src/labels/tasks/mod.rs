//! The task of asyncio that a thread runs, and the tasks that wait for it: labels of samples without any call of the program.
//!
//! ```text
//! the thread's state ──▶ its running task (3.14 and later)                        ──▶ its name, or its coroutine's
//!                    ──▶ its running loop ──▶ `_asyncio._current_tasks` (before)       ──▶ the task that waits for it …
//! ```
//!
//! Nothing of the interpreter is changed, and no Python code runs. The offsets are found when a sample first meets a running task
//! ([`find`]), which a sample looks for once a coroutine, or a function of asyncio that runs a loop, was seen in a stack. So a program that does not use asyncio pays nothing.
//! A sample reads the words plainly where its thread holds the GIL, and through the kernel elsewhere: in a tick, in native code that has given the GIL away,
//! and where there is no GIL, so that another thread may change a dictionary.
//!
//! ```text
//! find     where the running task is, and where it has its name
//! found    from a thread's state to the text of its task
//! objects  dictionaries, texts and types, by reads alone
//! texts    texts with numbers, which a signal handler may add to
//! ```

mod find;
mod found;
mod objects;
mod texts;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use nthbyte_host::process::{CachedProbe, Probe};
use nthbyte_profile::event::LabelSetId;
use nthbyte_profile::{AWAITED_BY, TASK};
use nthbyte_session::labels::Set;
use nthbyte_session::{Recording, RecordingCell};

use super::hamt::Direct;
use crate::api::{Api, FREE_THREADED};
use crate::layout::Layout;
use found::{BETWEEN, Names, TEXTS, TaskLayout};
use texts::OTHER;

pub use texts::BITS;

/// Null before asyncio was seen.
static SEEN: AtomicPtr<Seen> = AtomicPtr::new(std::ptr::null_mut());

/// The numbers of texts stay the same for ever, so no recording empties it.
static NAMES: RecordingCell<Names> = RecordingCell::new(Names::new());

/// What reads through the kernel, and the process that it reads: it is too large for a small stack.
static MEMORY: RecordingCell<Option<(u32, CachedProbe)>> = RecordingCell::new(None);

/// The search for running tasks.
struct Seen {
    layout: Layout,
    /// Null before the offsets were found.
    found: AtomicPtr<TaskLayout>,
    /// Samples since asyncio was seen, as long as nothing is found.
    samples: AtomicU32,
}

/// Called with the name and the file of each function that is met in a stack, and whether it is a coroutine or an asynchronous generator: the
/// functions of an event loop that is not asyncio's own may be written in C. A sample of native memory meets functions without the GIL, too.
#[inline]
pub fn meet(layout: &Layout, name: &str, file: &str, is_asynchronous: bool) {
    let runs_loops = matches!(
        name,
        "Handle._run"
            | "BaseEventLoop._run_once"
            | "BaseEventLoop.run_forever"
            | "BaseEventLoop.run_until_complete"
            | "Runner.run"
            | "run"
    );
    let runs_loops = runs_loops && file.contains("/asyncio/");
    // Modules of the standard library make a coroutine each when they are imported, to see its type.
    let is_loaded =
        || Api::get().is_ok_and(|api| has_gil(api) && find::asyncio(api, layout).is_some());
    if !(runs_loops || is_asynchronous && is_loaded()) {
        return;
    }
    // SAFETY: never freed.
    match unsafe { SEEN.load(Relaxed).as_ref() } {
        // It is nearer to a task than what was met before.
        Some(seen) => seen.samples.store(0, Relaxed),
        None => {
            let seen = Box::into_raw(Box::new(Seen {
                layout: *layout,
                found: AtomicPtr::new(std::ptr::null_mut()),
                samples: AtomicU32::new(0),
            }));
            // One recording at a time meets functions: no other thread is here.
            SEEN.store(seen, Release);
        }
    }
}

/// The number of the text of a thread's running task; 0 if there is none, or if it is not known where it is.
///
/// # Safety
/// The state is the calling thread's own.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn of_thread(state: usize, recording: &mut Recording<'_>) -> u32 {
    // SAFETY: never freed.
    match unsafe { SEEN.load(Acquire).as_ref() } {
        // SAFETY: by the caller.
        Some(seen) => unsafe { seen.of_thread(state, recording) },
        None => 0,
    }
}

/// The same of a tick. Safe in a signal handler.
pub fn of_tick(state: usize, memory: &CachedProbe) -> u32 {
    // SAFETY: never freed.
    let number = unsafe { SEEN.load(Acquire).as_ref() }.and_then(|seen| {
        // SAFETY: as above.
        let found = unsafe { seen.found.load(Acquire).as_ref() }?;
        found.text(&seen.layout, state, memory)
    });
    number.unwrap_or(0)
}

/// Whether the calling thread has the GIL.
fn has_gil(api: &Api) -> bool {
    // SAFETY: both are callable at any time.
    let (own, with_gil) = unsafe {
        (
            (api.PyGILState_GetThisThreadState)(),
            (api.PyThreadState_GetUnchecked)(),
        )
    };
    !own.is_null() && own == with_gil
}

impl Seen {
    /// # Safety
    /// The state is the calling thread's own.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn of_thread(&self, state: usize, recording: &mut Recording<'_>) -> u32 {
        let Ok(api) = Api::get() else {
            return 0;
        };
        // Before 3.12 this is the state of the thread with the GIL, whichever that is.
        // SAFETY: callable at any time.
        let has_gil = unsafe { (api.PyThreadState_GetUnchecked)() } as usize == state;
        // SAFETY: never freed.
        let found = match unsafe { self.found.load(Acquire).as_ref() } {
            Some(found) => found,
            None if has_gil => match self.find(api, state) {
                Some(found) => found,
                None => return 0,
            },
            None => return 0,
        };
        let text = if has_gil && !FREE_THREADED {
            // SAFETY: with the GIL held, a running task and what it refers to are alive; the layout is as found.
            let words = unsafe { Direct::new() };
            found.known_text(&self.layout, state, &words, NAMES.with(recording))
        } else {
            through_kernel(found, &self.layout, state, recording)
        };
        text.unwrap_or(0)
    }

    /// In the first samples, then in every 64th one, and not for ever.
    #[cold]
    #[inline(never)]
    fn find(&self, api: &'static Api, state: usize) -> Option<&TaskLayout> {
        let samples = self.samples.fetch_add(1, Relaxed);
        if samples >= 32 && (!samples.is_multiple_of(64) || samples > 1 << 16) {
            return None;
        }
        Probe::new()?;
        let found = find::find(api, &self.layout, state, &CachedProbe::new())?;
        let found = Box::into_raw(Box::new(found));
        self.found.store(found, Release);
        // SAFETY: never freed.
        unsafe { found.as_ref() }
    }
}

#[cold]
#[inline(never)]
fn through_kernel(
    found: &TaskLayout,
    layout: &Layout,
    state: usize,
    recording: &mut Recording<'_>,
) -> Option<u32> {
    let (memory, process) = (MEMORY.with(recording), std::process::id());
    if memory.as_ref().is_none_or(|(of, _)| *of != process) {
        Probe::new()?;
        *memory = Some((process, CachedProbe::new()));
    }
    let (_, memory) = memory.as_ref()?;
    memory.clear();
    found.text(layout, state, memory)
}

/// The labels of a task below others, and then a set's, which count for more. `None` if there is no room to record them.
#[unsafe(link_section = "nthbyte_hot")]
pub fn recorded_below(
    number: u32,
    mut id: LabelSetId,
    set: Option<&Set>,
    recording: &mut Recording<'_>,
) -> Option<LabelSetId> {
    if number != 0 {
        let bytes = TEXTS.bytes(number).unwrap_or_default();
        let text = if number == OTHER {
            "(other)".into()
        } else {
            String::from_utf8_lossy(&bytes)
        };
        let mut parts = text.splitn(2, char::from(BETWEEN));
        for (key, part) in [TASK, AWAITED_BY].into_iter().zip(&mut parts) {
            if !set.is_some_and(|set| set.has(key)) {
                id = recording.label(id, key, part)?;
            }
        }
    }
    match set {
        Some(set) => set.below(id, recording),
        None => Some(id),
    }
}
