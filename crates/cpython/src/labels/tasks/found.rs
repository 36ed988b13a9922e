//! From a thread's state to the text of its running task: its name, and the names of the tasks that wait for it.

use super::super::hamt::Words;
use super::objects::{self, KeyPlace};
use super::texts::{Text, Texts};
use crate::api::HEADER;
use crate::layout::Layout;

const SEPARATOR: &[u8] = b" > ";
/// Between the two labels of a text.
pub const BETWEEN: u8 = 0x1f;
/// Tasks that wait for each other which are named.
const MOST_WAITERS: usize = 6;
/// `PyDictObject.ma_used`.
const USED: usize = HEADER;
/// Loops that run tasks at a time which are looked at.
pub const MOST_LOOPS: usize = 8;
/// Entries of a thread's dictionary that are looked at.
pub const MOST_OF_THREAD: usize = 32;
/// The key of a thread's dictionary by which it has its loop, before 3.13.
pub const RUNNING_LOOP: &[u8] = b"__asyncio_running_event_loop__";
pub const TASK_TYPE: &[u8] = b"_asyncio.Task\0";

/// The texts of all tasks.
pub static TEXTS: Texts = Texts::new();

/// Where a running task is, and what it has there.
pub struct TaskLayout {
    pub running: Running,
    pub task_type: usize,
    pub text_type: usize,
    /// The offset of a task's coroutine. Its name follows.
    pub coroutine: usize,
    pub coroutine_type: usize,
    /// The offset of a coroutine's qualified name.
    pub qualified_name: usize,
    /// The offset of who waits for a task; 0 where that is not known.
    pub awaited_by: usize,
}

/// Where a thread has its running task. The offsets are of its state.
pub enum Running {
    /// The task.
    Task(usize),
    /// The loop; its task is in the dictionary.
    Loop(usize, usize),
    /// A dictionary in which the loop is, or an object that has it; its task is in the other dictionary.
    Dictionary {
        offset: usize,
        /// The key of the loop: one object in all threads, which the interpreter never frees.
        key: usize,
        /// The offset of the loop in the object that has it (`PyRunningLoopHolder.rl_loop` of 3.11); 0 where the value is the loop.
        holder: usize,
        tasks: usize,
    },
}

impl TaskLayout {
    /// The number of the text of a thread's running task. `None` if there is none.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn text(&self, layout: &Layout, state: usize, words: &impl Words) -> Option<u32> {
        let mut of_loop = KeyPlace::NONE;
        let task = self.task(layout, state, words, &mut of_loop)?;
        self.text_of(layout, task, self.name(layout, task, words)?, words)
    }

    /// The same, where texts that were found before are at hand.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn known_text(
        &self,
        layout: &Layout,
        state: usize,
        words: &impl Words,
        known: &mut Names,
    ) -> Option<u32> {
        let task = self.task(layout, state, words, &mut known.of_loop)?;
        let name = self.name(layout, task, words)?;
        let is_awaited = self.awaited_by != 0 && words.word(task + self.awaited_by)? != 0;
        let Name::Text(object) = name else {
            return self.text_of(layout, task, name, words);
        };
        let Some(read) = (!is_awaited)
            .then(|| Read::of(layout, object, words))
            .flatten()
        else {
            return self.text_of(layout, task, name, words);
        };
        let place = known.place(object);
        if place.read == read {
            return Some(place.number);
        }
        let number = self.text_of(layout, task, name, words)?;
        *place = Known { read, number };
        Some(number)
    }

    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    fn text_of(&self, layout: &Layout, task: usize, name: Name, words: &impl Words) -> Option<u32> {
        let mut text = Text::new();
        name.push(layout, words, &mut text)?;
        if self.awaited_by != 0 {
            self.push_waiters(layout, task, words, &mut text);
        }
        Some(TEXTS.number(&text))
    }

    #[inline(always)]
    fn task(
        &self,
        layout: &Layout,
        state: usize,
        words: &impl Words,
        of_loop: &mut KeyPlace,
    ) -> Option<usize> {
        let at = |offset: usize| words.word(state.checked_add(offset)?);
        let task = match self.running {
            Running::Task(offset) => at(offset)?,
            Running::Loop(offset, tasks) => task_of_loop(words, layout, at(offset)?, tasks)?,
            Running::Dictionary {
                offset,
                key,
                holder,
                tasks,
            } => {
                let own = at(offset)?;
                if own == 0 {
                    return None;
                }
                let found = of_loop.value(words, layout, own, key, MOST_OF_THREAD)?;
                let running = match holder {
                    0 => found,
                    holder => words.word(found.checked_add(holder)?)?,
                };
                task_of_loop(words, layout, running, tasks)?
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

    /// The name that the program gave a task, or else its coroutine's.
    #[inline(always)]
    fn name(&self, layout: &Layout, task: usize, words: &impl Words) -> Option<Name> {
        let name = words.word(task.checked_add(self.coroutine + 8)?)?;
        // From 3.12 on, a name that nobody gave is a number until it is asked for.
        if name != 0
            && objects::type_of(words, name)? == self.text_type
            && !is_given_by_asyncio(layout, name, words)?
        {
            return Some(Name::Text(name));
        }
        let coroutine = words.word(task.checked_add(self.coroutine)?)?;
        if coroutine == 0 {
            return None;
        }
        let class = objects::type_of(words, coroutine)?;
        if class != self.coroutine_type {
            return Some(Name::Type(class));
        }
        let name = words.word(coroutine.checked_add(self.qualified_name)?)?;
        Some(Name::Text(name))
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
            let pushed = self
                .name(layout, waiter, words)
                .and_then(|name| name.push(layout, words, to));
            if pushed.is_none() || to.is_full() {
                return;
            }
        }
    }
}

/// What a task is named by.
#[derive(Clone, Copy)]
enum Name {
    /// A `str`.
    Text(usize),
    /// The type of a coroutine that is none of the interpreter's.
    Type(usize),
}

impl Name {
    #[inline(always)]
    fn push(self, layout: &Layout, words: &impl Words, to: &mut Text) -> Option<()> {
        match self {
            Self::Text(object) => objects::push_text(words, layout, object, to),
            Self::Type(class) => objects::push_type_name(words, layout, class, to),
        }
    }
}

/// Names of tasks for which nobody waited, with the numbers of their texts.
///
/// All of the text is compared, not only its address: when a task has ended, its name's address may be another's.
pub struct Names {
    known: [Known; KNOWN_NAMES],
    /// Where a thread's dictionary has its loop.
    of_loop: KeyPlace,
}

const KNOWN_NAMES: usize = 64;
/// Words of a text that is kept.
const KEPT_WORDS: usize = 4;

#[derive(Clone, Copy)]
struct Known {
    read: Read,
    number: u32,
}

/// A short text of one byte a character, as it is in the interpreter.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Read {
    length: usize,
    words: [u64; KEPT_WORDS],
}

impl Names {
    pub const fn new() -> Self {
        let none = Read {
            length: usize::MAX,
            words: [0; KEPT_WORDS],
        };
        Self {
            known: [Known {
                read: none,
                number: 0,
            }; KNOWN_NAMES],
            of_loop: KeyPlace::NONE,
        }
    }

    #[inline(always)]
    const fn place(&mut self, object: usize) -> &mut Known {
        &mut self.known[object / 16 % KNOWN_NAMES]
    }
}

impl Read {
    /// `None` if the text is long, or not of one byte a character.
    #[inline(always)]
    fn of(layout: &Layout, object: usize, words: &impl Words) -> Option<Self> {
        let length = words.word(object.checked_add(layout.str_length)?)?;
        if length > 8 * KEPT_WORDS || !objects::is_ascii(words, layout, object)? {
            return None;
        }
        let first = object.checked_add(layout.ascii_size)?;
        let mut read = Self {
            length,
            words: [0; KEPT_WORDS],
        };
        for at in 0..length / 8 {
            read.words[at] = words.word(first + 8 * at)? as u64;
        }
        if length % 8 != 0 {
            let last = words.word(first + length / 8 * 8)? as u64;
            read.words[length / 8] = last & ((1 << (length % 8 * 8)) - 1);
        }
        Some(read)
    }
}

#[inline]
#[unsafe(link_section = "nthbyte_hot")]
fn task_of_loop(words: &impl Words, layout: &Layout, of: usize, tasks: usize) -> Option<usize> {
    if of == 0 {
        return None;
    }
    // `ma_used`: most samples outside of tasks end here.
    if words.word(tasks.checked_add(USED)?)? == 0 {
        return None;
    }
    // A task that begins to run is entered last.
    let mut entries = objects::entries(words, layout, tasks, MOST_LOOPS)?.rev();
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
