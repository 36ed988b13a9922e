//! The thread and the stack of a sample of native memory.
//!
//! Such a sample is taken inside of `malloc` or `mmap`, in any thread, with or without PyPy's lock, also in threads that
//! PyPy does not know. `_vmprof`'s handler walks the stack: it is made to run at any moment in any thread. The faster
//! walk of [`super::frame_list`] is for the holder of PyPy's lock.
//!
//! What the collector takes for itself (arenas for survivors, its lists) is not the program's memory: objects are
//! sampled as such. Nor is the list of running frames. Large objects are allocated by the agent's own code, which native memory leaves out.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_profile::event::NodeId;
use nthbyte_session::Recording;
use nthbyte_session::native::{Kind, Placed, Request, name_of_thread};

use super::handler::{Work, walk_here};
use super::links::Link;
use super::tree::node_of_frames;
use crate::gil_trap::GilTrap;

/// PyPy's code; 0 and 0 before a session.
static LIBRARY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The size of an element of the frame list, which PyPy allocates and frees in each interpreted call of a Python function.
const LINK: u64 = size_of::<Link>() as u64;

/// Makes requests of PyPy's own code known.
pub fn set_library(text: &Range<usize>) {
    LIBRARY[0].store(text.start, Relaxed);
    LIBRARY[1].store(text.end, Relaxed);
}

/// Whether what the calling thread allocates is the collector's, the agent's, or an element of the frame list.
pub fn is_own(request: &Request) -> bool {
    let is_link = || {
        request.size == LINK
            && request.kind == Kind::Malloc
            && (LIBRARY[0].load(Relaxed)..LIBRARY[1].load(Relaxed)).contains(&request.caller)
    };
    Work::here().is_some() || GilTrap::is_set() || is_link()
}

/// The calling thread and its stack. `None` if there is no room to record them.
pub fn place(recording: &mut Recording<'_>) -> Option<Placed> {
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    let frames = walk_here();
    if frames.is_empty() {
        let thread = recording.thread_named_by(os_id, &mut name_of_thread)?;
        return Some(Placed::Now(thread, NodeId::ROOT));
    }
    let stack = node_of_frames(recording, &frames)?;
    Some(Placed::Now(recording.thread(os_id)?, stack))
}
