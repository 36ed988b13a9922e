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
//! reader   from a thread's state to what is entered there
//! hamt     the walk through a context's map
//! check    finds the offset of the context, and compares walks with what the interpreter says
//! ```

mod check;
mod hamt;
mod objects;
mod reader;

use nthbyte_host::process::CachedProbe;
use nthbyte_profile::event::LabelSetId;
use nthbyte_session::Recording;
use nthbyte_session::labels::of_process;

use hamt::Direct;
use objects::Entered;
use reader::reader;

pub use check::{agree, locate, note, read};
pub use objects::{begin, label};

/// The labels in force of a thread, for a sample. `None` if there is no room to record them.
///
/// # Safety
/// The state is the calling thread's own.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn of_thread(state: usize, recording: &mut Recording<'_>) -> Option<LabelSetId> {
    let Some(reader) = reader() else {
        return of_process(recording);
    };
    // SAFETY: by the caller; the objects have the layout that was checked.
    let words = unsafe { Direct::new() };
    let Some(entered) = reader.entered(state, &words) else {
        return of_process(recording);
    };
    // SAFETY: its type is that of entered sets, and the thread's context keeps it alive.
    let set = unsafe { &*(*(entered as *const Entered)).set };
    set.recorded(recording)
}

/// The number of the labels in force of a thread, for a tick; 0 if there are none. Safe in a signal handler.
pub fn number_of_thread(state: usize, memory: &CachedProbe) -> u32 {
    let number = || {
        let reader = reader()?;
        let entered = reader.entered(state, memory)?;
        memory.word(entered.checked_add(Entered::NUMBER)?)
    };
    number().map_or(0, |number| number as u32)
}

/// The labels of a tick below those that it has already. `None` if there is no room to record them.
pub fn recorded_below(
    number: u32,
    parent: LabelSetId,
    recording: &mut Recording<'_>,
) -> Option<LabelSetId> {
    match nthbyte_session::labels::of_number(number) {
        Some(set) => set.below(parent, recording),
        None => Some(parent),
    }
}
