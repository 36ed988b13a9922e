//! The thread and the stack of a sample of native memory.
//!
//! Such a sample is taken inside of `malloc` or `mmap`, in any thread, with or without PyPy's lock, also in threads that
//! PyPy does not know. `_vmprof`'s handler walks the stack: it is made to run at any moment in any thread. The faster
//! walk of [`super::frame_list`] is for the holder of PyPy's lock.
//!
//! While PyPy switches from one greenlet to another, the handler ignores its signal. Until the stack is another one, which it is not
//! when PyPy asks for the memory into which it copies the old one, the list of frames is whole all the same: so the handler is made
//! to walk it.
//!
//! What the collector takes for itself (arenas for survivors, its lists) is not the program's memory: objects are
//! sampled as such. Nor is the list of running frames. Large objects are allocated by the agent's own code, which native memory leaves out.

use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use nthbyte_host::process::Probe;
use nthbyte_profile::event::NodeId;
use nthbyte_session::Recording;
use nthbyte_session::native::{Kind, Placed, Request};

use super::handler::{Work, walk_here};
use super::links::Link;
use super::record::RawFrame;
use super::tree::node_of_frames;
use crate::gil_trap::GilTrap;
use nthbyte_rpython::binary::{MappedLibrary, WORDS, count_of_ignoring, is_collectors};

/// PyPy's code, from the first session on.
static CODE: OnceLock<&[u8]> = OnceLock::new();

/// The number of those who want `_vmprof`'s handler to ignore its signal; `None` if it was not found.
static IGNORING: OnceLock<Option<&AtomicI64>> = OnceLock::new();

/// The size of an element of the frame list, which PyPy allocates and frees in each interpreted call of a Python function.
const LINK: u64 = size_of::<Link>() as u64;

/// Makes requests of PyPy's own code known.
pub fn set_library(library: &MappedLibrary) {
    CODE.get_or_init(|| library.code());
    IGNORING.get_or_init(|| {
        // SAFETY: the name is a terminated string; RTLD_DEFAULT searches all loaded libraries.
        let entry =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"vmprof_enter_signal".as_ptr()) } as usize;
        let start = entry.checked_sub(library.text.start)?;
        let code = library.code().get(start..)?;
        let count = count_of_ignoring(code, entry, &library.data)?;
        // SAFETY: an aligned word of PyPy's data, which is there as long as the process and which PyPy changes in atomic steps.
        Some(unsafe { AtomicI64::from_ptr(count as *mut i64) })
    });
}

/// Whether a call comes from PyPy's code.
fn is_pypys(request: &Request) -> bool {
    let code = CODE.get().map(|code| code.as_ptr_range());
    code.is_some_and(|code| code.contains(&(request.caller as *const u8)))
}

/// Whether what the calling thread allocates is the collector's, the agent's, or an element of the frame list.
pub fn is_own(request: &Request) -> bool {
    Work::here().is_some() || GilTrap::is_set() || is_interpreters(request)
}

/// Whether a request of PyPy's code, outside of a collection, is the collector's or an element of the frame list.
fn is_interpreters(request: &Request) -> bool {
    let Some(code) = CODE.get() else {
        return false;
    };
    let start = code.as_ptr() as usize;
    request.kind == Kind::Malloc
        && is_pypys(request)
        && (request.size == LINK
            || is_collectors(code, start, request.size, request.caller, copy_callers))
}

/// Copies the stack from behind these words on, which lie in the frame of a caller, through the kernel. If the system does not
/// allow it, they stay as they are.
#[inline(never)]
fn copy_callers(words: &mut [usize; WORDS]) {
    let behind = words.as_ptr_range().end as usize;
    // SAFETY: these are the bytes of the words.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
    };
    if let Some(memory) = Probe::new() {
        memory.bytes(behind, bytes);
    }
}

/// The calling thread and its stack. `None` if there is no room to record them.
pub fn place(recording: &mut Recording<'_>, request: &Request) -> Option<Placed> {
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    let mut frames = walk_here();
    if frames.is_empty() && is_pypys(request) {
        frames = walk_in_a_switch();
    }
    if frames.is_empty() {
        let thread = recording.thread_named_by_system(os_id)?;
        return Some(Placed::Now(thread, NodeId::ROOT));
    }
    let stack = node_of_frames(recording, &frames)?;
    Some(Placed::Now(recording.thread(os_id)?, stack))
}

/// The frames of the calling thread, if the handler is asked by one only to ignore its signal. The count is correct afterwards, whoever
/// changes it meanwhile.
#[cold]
fn walk_in_a_switch() -> Vec<RawFrame> {
    let Some(count) = IGNORING.get().copied().flatten() else {
        return Vec::new();
    };
    if count.load(Relaxed) != 1 {
        return Vec::new();
    }
    count.fetch_sub(1, AcqRel);
    let frames = walk_here();
    count.fetch_add(1, AcqRel);
    frames
}
