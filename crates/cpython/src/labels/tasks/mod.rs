//! The task of asyncio that a thread runs, and the tasks that wait for it: labels of samples without any call of the program.
//!
//! ```text
//! the thread's state ──▶ its running task (3.14 and later)                        ──▶ its name, or its coroutine's
//!                    ──▶ its running loop ──▶ `_asyncio._current_tasks` (before)       ──▶ the task that waits for it …
//! ```
//!
//! Nothing of the interpreter is changed, and no Python code runs. The offsets are found when a sample first meets a running task
//! ([`find`]), which a sample looks for once functions of asyncio were seen in a stack. So a program that does not use asyncio pays nothing.
//! A sample reads the words plainly where its thread holds the GIL, and through the kernel elsewhere: in a tick, and in native code that has given the GIL away.
//!
//! ```text
//! find     where the running task is, and where it has its name
//! objects  dictionaries, texts and types, by reads alone
//! texts    texts with numbers, which a signal handler may add to
//! ```

mod find;
mod objects;
mod texts;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use nthbyte_host::process::{CachedProbe, Probe};
use nthbyte_profile::event::LabelSetId;
use nthbyte_session::Recording;
use nthbyte_session::labels::Set;

use super::hamt::{Direct, Words};
use crate::api::Api;
use crate::layout::Layout;
use texts::{OTHER, Text, Texts};

pub use texts::BITS;

/// The labels: a task's name, and those of the tasks that wait for it, the outermost one first.
pub const TASK: &str = "task";
pub const AWAITED_BY: &str = "awaited_by";
const SEPARATOR: &[u8] = b" > ";
/// Between the two labels of a text.
const BETWEEN: u8 = 0x1f;
/// Tasks that wait for each other which are named.
const MOST_WAITERS: usize = 6;
/// Loops that run tasks at a time which are looked at.
const MOST_LOOPS: usize = 8;
/// The key of a thread's dictionary by which it has its loop, before 3.13.
const RUNNING_LOOP: &[u8] = b"__asyncio_running_event_loop__";
const TASK_TYPE: &[u8] = b"_asyncio.Task\0";

static TEXTS: Texts = Texts::new();
/// Null before asyncio was seen.
static SEEN: AtomicPtr<Seen> = AtomicPtr::new(std::ptr::null_mut());

/// The search for running tasks.
struct Seen {
    layout: Layout,
    /// Null before the offsets were found.
    found: AtomicPtr<Found>,
    /// Samples since asyncio was seen, as long as nothing is found.
    samples: AtomicU32,
}

/// Where a running task is, and what it has there.
struct Found {
    running: Running,
    task_type: usize,
    text_type: usize,
    /// The offset of a task's coroutine. Its name follows.
    coroutine: usize,
    coroutine_type: usize,
    /// The offset of a coroutine's qualified name.
    qualified_name: usize,
    /// The offset of who waits for a task; 0 where that is not known.
    awaited_by: usize,
}

/// Where a thread has its running task. The offsets are of its state.
enum Running {
    /// The task.
    Task(usize),
    /// The loop; its task is in the dictionary.
    Loop(usize, usize),
    /// A dictionary, in which the loop is, or an object that has it; its task is in the other dictionary.
    Dictionary(usize, usize),
}

/// Called with the name and the file of each function that is met in a stack.
#[inline]
pub fn meet(layout: &Layout, name: &str, file: &str) {
    let runs_loops = matches!(
        name,
        "Handle._run"
            | "BaseEventLoop._run_once"
            | "BaseEventLoop.run_forever"
            | "BaseEventLoop.run_until_complete"
            | "Runner.run"
            | "run"
    );
    if !runs_loops || !file.contains("/asyncio/") {
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
pub unsafe fn of_thread(state: usize) -> u32 {
    // SAFETY: never freed.
    match unsafe { SEEN.load(Acquire).as_ref() } {
        // SAFETY: by the caller.
        Some(seen) => unsafe { seen.of_thread(state) },
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

impl Seen {
    /// # Safety
    /// The state is the calling thread's own.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn of_thread(&self, state: usize) -> u32 {
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
        let text = if has_gil {
            // SAFETY: with the GIL held, a running task and what it refers to are alive; the layout is as found.
            found.text(&self.layout, state, &unsafe { Direct::new() })
        } else {
            without_gil(found, &self.layout, state)
        };
        text.unwrap_or(0)
    }

    /// In the first samples, then in every 64th one, and not for ever.
    #[cold]
    #[inline(never)]
    fn find(&self, api: &'static Api, state: usize) -> Option<&Found> {
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
fn without_gil(found: &Found, layout: &Layout, state: usize) -> Option<u32> {
    Probe::new()?;
    found.text(layout, state, &CachedProbe::new())
}

impl Found {
    /// The number of the text of a thread's running task. `None` if there is none.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    fn text(&self, layout: &Layout, state: usize, words: &impl Words) -> Option<u32> {
        let task = self.task(layout, state, words)?;
        let mut text = Text::new();
        self.push_name(layout, task, words, &mut text)?;
        if self.awaited_by != 0 {
            self.push_waiters(layout, task, words, &mut text);
        }
        Some(TEXTS.number(&text))
    }

    #[inline(always)]
    fn task(&self, layout: &Layout, state: usize, words: &impl Words) -> Option<usize> {
        let at = |offset: usize| words.word(state.checked_add(offset)?);
        let task = match self.running {
            Running::Task(offset) => at(offset)?,
            Running::Loop(offset, tasks) => task_of_loop(words, layout, at(offset)?, tasks)?,
            Running::Dictionary(offset, tasks) => {
                let own = at(offset)?;
                if own == 0 {
                    return None;
                }
                let found = objects::value_of(words, layout, own, RUNNING_LOOP, MOST_LOOPS)?;
                match task_of_loop(words, layout, found, tasks) {
                    Some(task) => task,
                    // `PyRunningLoopHolder.rl_loop` of 3.11.
                    None => {
                        task_of_loop(words, layout, words.word(found.checked_add(16)?)?, tasks)?
                    }
                }
            }
        };
        self.is_task(layout, task, words).then_some(task)
    }

    #[inline(always)]
    fn is_task(&self, layout: &Layout, task: usize, words: &impl Words) -> bool {
        task != 0
            && (objects::type_of(words, task) == Some(self.task_type)
                || objects::is_instance(words, layout, task, TASK_TYPE))
    }

    /// Adds the name that the program gave a task, or else that of its coroutine.
    #[inline(always)]
    fn push_name(
        &self,
        layout: &Layout,
        task: usize,
        words: &impl Words,
        to: &mut Text,
    ) -> Option<()> {
        let name = words.word(task.checked_add(self.coroutine + 8)?)?;
        // From 3.12 on, a name that nobody gave is a number until it is asked for.
        if name != 0
            && objects::type_of(words, name)? == self.text_type
            && !is_given_by_asyncio(layout, name, words)?
        {
            return objects::push_text(words, layout, name, to);
        }
        let coroutine = words.word(task.checked_add(self.coroutine)?)?;
        if coroutine == 0 {
            return None;
        }
        let class = objects::type_of(words, coroutine)?;
        if class != self.coroutine_type {
            return objects::push_type_name(words, layout, class, to);
        }
        let name = words.word(coroutine.checked_add(self.qualified_name)?)?;
        objects::push_text(words, layout, name, to)
    }

    /// Adds the names of the tasks that wait for a task, the outermost one first. Where several wait, none is named.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    fn push_waiters(&self, layout: &Layout, task: usize, words: &impl Words, to: &mut Text) {
        let mut waiters = [0; MOST_WAITERS];
        let mut count = 0;
        let mut at = task;
        while count < MOST_WAITERS {
            let waiter = at
                .checked_add(self.awaited_by)
                .and_then(|place| words.word(place));
            match waiter {
                Some(waiter) if waiter != task && self.is_task(layout, waiter, words) => {
                    waiters[count] = waiter;
                    count += 1;
                    at = waiter;
                }
                _ => break,
            }
        }
        for (number, &waiter) in waiters[..count].iter().rev().enumerate() {
            to.push(if number == 0 { &[BETWEEN] } else { SEPARATOR });
            if self.push_name(layout, waiter, words, to).is_none() || to.is_full() {
                return;
            }
        }
    }
}

#[inline]
fn task_of_loop(words: &impl Words, layout: &Layout, of: usize, tasks: usize) -> Option<usize> {
    if of == 0 {
        return None;
    }
    let mut entries = objects::entries(words, layout, tasks, MOST_LOOPS)?;
    entries.find_map(|(key, task)| (key == of).then_some(task))
}

/// Whether a name is `Task-1` or the like, which says less than the coroutine's.
#[inline(always)]
fn is_given_by_asyncio(layout: &Layout, name: usize, words: &impl Words) -> Option<bool> {
    let length = words.word(name.checked_add(layout.str_length)?)?;
    let first = words.word(name.checked_add(layout.ascii_size)?)?;
    // More digits are read as a name of the program's.
    Some(
        length > 5 && length <= 12 && first.to_ne_bytes().starts_with(b"Task-") && {
            let second = words.word(name.checked_add(layout.ascii_size + 8)?)?;
            let bytes = [first.to_ne_bytes(), second.to_ne_bytes()];
            bytes.as_flattened()[5..length]
                .iter()
                .all(u8::is_ascii_digit)
        },
    )
}

/// The labels of a task below others, and then those of a set, which count for more. `None` if there is no room to record them.
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
