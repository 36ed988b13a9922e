//! Labels: what a program says that it is working on, such as a request's endpoint.
//!
//! ```text
//! label ──enter──▶ entered set ──PyContextVar_Set──▶ the thread's context ◀──reads── sample, tick
//! ```
//!
//! One context variable has an immutable object as its value: the labels in force. So labels follow `contextvars` over
//! `await`, tasks and threads that copy their context. A sample reads the value without running Python: it walks from the thread's
//! state to its context, and through the context's map ([`hamt`]). That is safe in an allocation and in a signal handler: maps are never changed, a context
//! gets its new map before the old one is released, and a thread reads its own state only.
//!
//! ```text
//! objects  the Python objects: a label, and the sets that are entered
//! reader   from a thread's state to the set entered there
//! hamt     the walk through a context's map
//! check    finds the offset of the context, and compares walks with what the interpreter says
//! tasks/   the task of asyncio that a thread runs, which needs no label of the program's
//! ```

mod check;
mod hamt;
mod objects;
mod reader;
mod tasks;

use nthbyte_host::process::CachedProbe;
use nthbyte_profile::event::LabelSetId;
use nthbyte_session::labels::{Set, address_of_process, of_process};
use nthbyte_session::{Recording, RecordingCell};

use hamt::Direct;
use objects::Entered;
use reader::reader;

pub use check::{agree, locate, note, read};
pub use objects::{begin, label};
pub use tasks::meet as meet_function;

/// Places for numbers of sets with their tasks.
const KNOWN: usize = 256;

/// The number, in the profile, of a set with a task, and with the labels of the process.
#[derive(Clone, Copy)]
struct Known {
    set: u32,
    task: u32,
    process: usize,
    epoch: u32,
    id: LabelSetId,
}

static KNOWN_PLACES: RecordingCell<[Known; KNOWN]> = RecordingCell::new(
    [Known {
        set: 0,
        task: 0,
        process: 0,
        epoch: 0,
        id: LabelSetId::NONE,
    }; KNOWN],
);

/// The labels in force of a thread, and its task, for a sample. `None` if there is no room to record them.
///
/// # Safety
/// The state is the calling thread's own.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn of_thread(state: usize, recording: &mut Recording<'_>) -> Option<LabelSetId> {
    // SAFETY: by the caller; the objects have the layout that was checked.
    let words = unsafe { Direct::new() };
    let entered = reader().and_then(|reader| reader.entered(state, &words));
    // SAFETY: it is an entered set, and the thread's context keeps it alive.
    let set = entered.map(|entered| unsafe { &*(*(entered as *const Entered)).set });
    // SAFETY: by the caller.
    let task = unsafe { tasks::of_thread(state, recording) };
    match (task, set) {
        (0, None) => of_process(recording),
        (0, Some(set)) => set.recorded(recording),
        (task, set) => with_task(task, set, recording),
    }
}

/// The labels in force in a task.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
fn with_task(task: u32, of: Option<&Set>, recording: &mut Recording<'_>) -> Option<LabelSetId> {
    let set = of.map_or(0, |set| set.number);
    let place = (set.wrapping_mul(31) ^ task) as usize % KNOWN;
    let (process, epoch) = (address_of_process(), recording.epoch().number());
    let known = KNOWN_PLACES.with(recording)[place];
    if (known.set, known.task, known.process, known.epoch) == (set, task, process, epoch) {
        return Some(known.id);
    }
    let id = of_process(recording)?;
    let id = tasks::recorded_below(task, id, of, recording)?;
    if of.is_none_or(Set::has_number) {
        KNOWN_PLACES.with(recording)[place] = Known {
            set,
            task,
            process,
            epoch,
            id,
        };
    }
    Some(id)
}

/// The labels in force of a thread and its task, for a tick, as a number; 0 if there are none. Safe in a signal handler.
pub fn number_of_thread(state: usize, memory: &CachedProbe) -> u32 {
    let number = || {
        let reader = reader()?;
        let entered = reader.entered(state, memory)?;
        memory.word(entered.checked_add(Entered::NUMBER)?)
    };
    number().map_or(0, |number| number as u32) << tasks::BITS | tasks::of_tick(state, memory)
}

/// The labels of a tick below those that it has already. `None` if there is no room to record them.
pub fn recorded_below(
    number: u32,
    parent: LabelSetId,
    recording: &mut Recording<'_>,
) -> Option<LabelSetId> {
    let task = number & ((1 << tasks::BITS) - 1);
    let set = nthbyte_session::labels::of_number(number >> tasks::BITS);
    tasks::recorded_below(task, parent, set, recording)
}
