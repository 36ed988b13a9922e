//! From a thread's state to the text of its running task: its name, and those of the tasks that wait for it.

use super::super::hamt::Words;
use super::objects;
use super::texts::{Text, Texts};
use crate::layout::Layout;

const SEPARATOR: &[u8] = b" > ";
/// Between the two labels of a text.
pub const BETWEEN: u8 = 0x1f;
/// Tasks that wait for each other which are named.
const MOST_WAITERS: usize = 6;
/// Loops that run tasks at a time which are looked at.
pub const MOST_LOOPS: usize = 8;
/// Entries of a thread's dictionary that are looked at.
pub const MOST_OF_THREAD: usize = 8;
/// The key of a thread's dictionary by which it has its loop, before 3.13.
pub const RUNNING_LOOP: &[u8] = b"__asyncio_running_event_loop__";
pub const TASK_TYPE: &[u8] = b"_asyncio.Task\0";

/// The texts of all tasks.
pub static TEXTS: Texts = Texts::new();

/// Where a running task is, and what it has there.
pub struct Found {
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

impl Found {
    /// The number of the text of a thread's running task. `None` if there is none.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn text(&self, layout: &Layout, state: usize, words: &impl Words) -> Option<u32> {
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
                let mut entries = objects::entries(words, layout, own, MOST_OF_THREAD)?;
                let found = entries.find_map(|(other, value)| (other == key).then_some(value))?;
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
#[unsafe(link_section = "nthbyte_hot")]
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
