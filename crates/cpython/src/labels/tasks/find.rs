//! Finds where a thread's state has the running task, and where a task has its name, by what the objects are.
//!
//! A task is known by its type's name. Its coroutine, name and context are three words one after the other
//! (`TaskObj` of `Modules/_asynciomodule.c`), and no others have such types.

use nthbyte_host::process::CachedProbe;

use super::super::hamt::Direct;
use super::found::{MOST_LOOPS, MOST_OF_THREAD, RUNNING_LOOP, Running, TASK_TYPE, TaskLayout};
use super::objects::{entries, entry_of, has_name, is_instance, is_str, type_of};
use crate::api::{Api, FREE_THREADED, Gil, HEADER};
use crate::layout::Layout;

/// The part of the thread's state that is searched, in bytes: more than it has in any version.
const SEARCHED: usize = 1_280;
/// The parts of a task and of a coroutine that are searched, with their headers.
const OF_TASK: usize = HEADER + 240;
const OF_COROUTINE: usize = HEADER + 48;
/// Modules that are looked at, for `_asyncio`, and its names.
const MOST_MODULES: usize = 1 << 16;
/// `PyModuleObject.md_dict`.
const MODULE_NAMES: usize = HEADER;
/// `fut_awaited_by` of 3.14 and 3.15, back from `task_coro`: the future's state and what the task waits for are between.
const AWAITED_BY: usize = 32;
/// `PyRunningLoopHolder.rl_loop` of 3.11.
const HOLDER: usize = HEADER;
/// `fut_state` of a task that is not done.
const PENDING: u32 = 0;
const V3_14: u32 = 0x030e_0000;

/// `None` if the thread runs no task, or if something is not where it should be. The caller holds the GIL.
#[cold]
pub fn find(
    api: &'static Api,
    layout: &Layout,
    state: usize,
    words: &CachedProbe,
) -> Option<TaskLayout> {
    let has_awaited_by = api.version() >= V3_14;
    let (running, task) = if has_awaited_by {
        let (offset, task) = once(state, words, |word| {
            is_instance(words, layout, word, TASK_TYPE).then_some(word)
        })?;
        (Running::Task(offset), task)
    } else {
        of_loop(api, layout, state, words)?
    };
    let is_of = |object: usize, name: &[u8]| {
        object != 0
            && type_of(words, object).and_then(|class| has_name(words, layout, class, name))
                == Some(true)
    };
    let is_name = |object| is_of(object, b"str\0") || is_of(object, b"int\0");
    let coroutine = (HEADER..OF_TASK).step_by(8).find(|offset| {
        let at = |offset| words.word(task.wrapping_add(offset)).unwrap_or(0);
        is_of(at(*offset), b"coroutine\0")
            && is_name(at(offset + 8))
            && is_of(at(offset + 16), b"_contextvars.Context\0")
    })?;
    let object = words.word(task.checked_add(coroutine)?)?;
    // The name, and after it the qualified name.
    let name = (HEADER..OF_COROUTINE).step_by(8).find(|offset| {
        [*offset, offset + 8].iter().all(|offset| {
            let text = words.word(object.wrapping_add(*offset)).unwrap_or(0);
            text != 0 && is_str(words, layout, text) == Some(true)
        })
    })?;
    let mut class = type_of(words, task)?;
    while has_name(words, layout, class, TASK_TYPE) != Some(true) {
        class = words.word(class.checked_add(layout.type_dict - 8)?)?;
    }
    if let Running::Loop(_, tasks) | Running::Dictionary { tasks, .. } = running {
        // The module lets go of it at the interpreter's end; a sample may come after that.
        // SAFETY: the GIL is held; it is a live dictionary.
        unsafe { Gil::assume(api).increment(tasks as *mut _) };
    }
    Some(TaskLayout {
        running,
        task_type: class,
        text_type: api.PyUnicode_Type as usize,
        coroutine,
        coroutine_type: type_of(words, object)?,
        qualified_name: name + 8,
        awaited_by: if has_awaited_by {
            awaited_by(layout, task, coroutine, words).unwrap_or(0)
        } else {
            0
        },
    })
}

/// The offset of what waits for a task. The word after it has the state of the task, which is pending while it runs, and a few bits.
fn awaited_by(
    layout: &Layout,
    task: usize,
    coroutine: usize,
    words: &CachedProbe,
) -> Option<usize> {
    let place = coroutine.checked_sub(AWAITED_BY)?;
    let state = words.word(task.checked_add(place + 8)?)?;
    let waiter = words.word(task.checked_add(place)?)?;
    let is_known = waiter == 0
        || is_instance(words, layout, waiter, TASK_TYPE)
        || has_name(words, layout, type_of(words, waiter)?, b"set\0")?;
    (state as u32 == PENDING && state != 0 && is_known).then_some(place)
}

/// The one word of the thread's state that is an object of which this is something. `None` if it is of several.
fn once(
    state: usize,
    words: &CachedProbe,
    what: impl Fn(usize) -> Option<usize>,
) -> Option<(usize, usize)> {
    let mut found = (8..SEARCHED).step_by(8).filter_map(|offset| {
        let word = words.word(state.wrapping_add(offset))?;
        let is_object = word > 1 << 12 && word < 1 << 47 && word % 16 == 0;
        is_object.then(|| Some((offset, what(word)?)))?
    });
    // The searched part is longer than the state: something else may be behind it.
    let first = found.next()?;
    found.all(|other| other.1 == first.1).then_some(first)
}

/// The module `_asyncio`, once it is imported. The caller holds the GIL.
#[cold]
pub fn asyncio(api: &Api, layout: &Layout) -> Option<usize> {
    // SAFETY: the GIL is held; it neither allocates nor runs Python code.
    let modules = unsafe { (api.PyImport_GetModuleDict)() } as usize;
    if modules == 0 {
        return None;
    }
    named(layout, modules, b"_asyncio")
}

/// The value of a name in a dictionary of the interpreter's, which lives on. The caller holds the GIL. Without one, another thread may change
/// the dictionary.
fn named(layout: &Layout, dictionary: usize, name: &[u8]) -> Option<usize> {
    let found = if FREE_THREADED {
        entry_of(&CachedProbe::new(), layout, dictionary, name, MOST_MODULES)
    } else {
        // SAFETY: with the GIL held, the dictionary and its names are alive; their layout was checked at the start.
        let direct = unsafe { Direct::new() };
        entry_of(&direct, layout, dictionary, name, MOST_MODULES)
    };
    found.map(|(_, value)| value)
}

/// Before 3.14: the running loop, and its task.
fn of_loop(
    api: &Api,
    layout: &Layout,
    state: usize,
    words: &CachedProbe,
) -> Option<(Running, usize)> {
    let module = asyncio(api, layout)?;
    let names = words.word(module.checked_add(MODULE_NAMES)?)?;
    let dictionary = type_of(words, names)?;
    if has_name(words, layout, dictionary, b"dict\0") != Some(true) {
        return None;
    }
    let tasks = named(layout, names, b"_current_tasks")?;
    for (running, task) in entries(words, layout, tasks, MOST_LOOPS)? {
        if !is_instance(words, layout, task, TASK_TYPE) {
            continue;
        }
        let is_loop = |word| (word == running).then_some(word);
        if let Some((offset, _)) = once(state, words, is_loop) {
            return Some((Running::Loop(offset, tasks), task));
        }
        let entry = |word| entry_of(words, layout, word, RUNNING_LOOP, MOST_OF_THREAD);
        let has_loop = |word| {
            let (_, value) = (type_of(words, word)? == dictionary).then(|| entry(word))??;
            let is_loop = value == running || words.word(value.checked_add(HOLDER)?)? == running;
            is_loop.then_some(word)
        };
        if let Some((offset, of_thread)) = once(state, words, has_loop) {
            let (key, value) = entry(of_thread)?;
            let found = Running::Dictionary {
                offset,
                key,
                holder: if value == running { 0 } else { HOLDER },
                tasks,
            };
            return Some((found, task));
        }
    }
    None
}
