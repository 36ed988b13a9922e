//! The thread and the stack of a sample of native memory.
//!
//! Such a sample is taken inside of `malloc` or `mmap`, in any thread, with or without the GIL, and also in threads that
//! Python does not know. The walk needs no GIL: it starts at the thread's own `PyThreadState`
//! (`PyGILState_GetThisThreadState`), and only the thread itself changes its frames, none of which runs while it is in C
//! code. The frames keep their code objects alive. A thread that Python does not know has a name, and native frames if
//! these are recorded, or what an [`OwnThread`] says.
//!
//! A program that embeds Python may delete the state of one thread in another one (`PyThreadState_Delete`). The first thread
//! still has the address then. So a state is used only if it [is alive](living).
//!
//! Frames of other interpreters are left out: their code objects are not watched (`patches/dealloc.rs`).

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_profile::event::{LabelSetId, LostKind, NodeId};
use nthbyte_session::labels::of_process;
use nthbyte_session::native::Placed;
use nthbyte_session::{Recording, RecordingCell, Session, native};
use nthbyte_unwind::Unwinder;

use crate::api::Api;
use crate::labels;
use crate::layout::Layout;
use crate::sampling::codes::Codes;
use crate::sampling::data_stack::StackReader;
use crate::sampling::walker::Walker;
use nthbyte_host::process::Probe;

/// The upper limit of the size of a function that calls `mmap` for the interpreter's arenas.
const ARENA_FUNCTION: usize = 256;

/// What a walk needs.
struct State {
    api: &'static Api,
    layout: Layout,
    walker: Walker,
    codes: Codes,
    /// Whether the frames of native code are recorded.
    has_frames: bool,
    /// [`FREED_CODES`] at the last walk.
    freed_codes: u64,
    /// Threads of Python that were met here, the last one first; 0 for none. They may have ended.
    threads: [usize; 4],
}

/// The stack of a thread that Python does not know, where no native frames are recorded: the last argument but one are
/// `PyThreadState`s of threads that may wait for it, and may have ended.
pub type OwnThread = fn(&'static Api, &Layout, &[usize], &mut Recording<'_>) -> Option<NodeId>;

static STATE: RecordingCell<Option<State>> = RecordingCell::new(None);

/// The number of recorded code objects that were freed. A walk compares frames with the last walk's, which must not find
/// a new code object at an old one's address.
static FREED_CODES: AtomicU64 = AtomicU64::new(0);

/// Starts to record native memory, if the process can. The session's description has the sources.
pub fn begin(api: &'static Api, layout: &Layout, session: &Session, seed: u64, with_frames: bool) {
    let has_frames = with_frames && nthbyte_unwind::begin(session);
    {
        let Some(mut recording) = session.record(LostKind::Other) else {
            return;
        };
        *STATE.with(&mut recording) = Some(State {
            api,
            layout: *layout,
            walker: Walker::new(StackReader::Native),
            codes: Codes::new(api),
            has_frames,
            freed_codes: 0,
            // SAFETY: callable at any time, in any thread.
            threads: [
                unsafe { (api.PyGILState_GetThisThreadState)() } as usize,
                0,
                0,
                0,
            ],
        });
    }
    let mut arenas = [0_usize; 3];
    // SAFETY: the function stores the three words of a `PyObjectArenaAllocator`: context, `alloc`, `free`.
    unsafe { (api.PyObject_GetArenaAllocator)(arenas.as_mut_ptr()) };
    let arena_function = [arenas[1], arenas[1].saturating_add(ARENA_FUNCTION)];
    native::connect(session, seed, &[arena_function]);
}

/// The unwinder, if native frames are recorded.
///
/// # Safety
/// As for [`nthbyte_unwind::unwinder`].
unsafe fn unwinder(has_frames: bool) -> Option<&'static mut Unwinder> {
    has_frames
        // SAFETY: by the contract.
        .then(|| unsafe { nthbyte_unwind::unwinder() })
        .flatten()
}

/// Called when a code object that was recorded is about to be freed.
pub fn code_freed() {
    FREED_CODES.fetch_add(1, Release);
}

/// Tells the calling thread and its stack. `of_own_thread` tells the stack of one that Python does not know.
pub fn place(recording: &mut Recording<'_>, of_own_thread: OwnThread) -> Option<Placed> {
    // SAFETY: there is a recording, and this is the only use of the state in this thread.
    let state = unsafe { STATE.beside_recording() }.as_mut()?;
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    let Some(thread) = living(state, os_id) else {
        let thread = recording.thread_named_by_system(os_id)?;
        // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
        return match unsafe { unwinder(state.has_frames) } {
            Some(unwinder) => unwinder.place(recording, thread),
            None => {
                let State {
                    api,
                    layout,
                    threads,
                    ..
                } = state;
                let stack = of_own_thread(api, layout, threads, recording)?;
                Some(Placed::Now(thread, stack))
            }
        };
    };
    if state.threads[0] != thread as usize {
        let known = state.threads.iter().position(|&of| of == thread as usize);
        state.threads[..=known.unwrap_or(3)].rotate_right(1);
        state.threads[0] = thread as usize;
    }
    // SAFETY: as above; a thread state keeps its interpreter.
    let is_main = unsafe {
        (state.api.PyThreadState_GetInterpreter)(thread) == (state.api.PyInterpreterState_Main)()
    };
    let freed_codes = FREED_CODES.load(Acquire);
    if state.freed_codes != freed_codes {
        state.freed_codes = freed_codes;
        state.walker.forget();
    }
    let State {
        layout,
        walker,
        codes,
        has_frames,
        ..
    } = state;
    // SAFETY: as above.
    let stack = match unsafe { unwinder(*has_frames) } {
        _ if !is_main => NodeId::ROOT,
        // SAFETY: the calling thread's own state, whose frames do not change while this thread is here.
        None => unsafe { walker.stack(layout, thread as usize, codes, recording)? },
        Some(unwinder) => {
            unwinder.walk(recording.epoch());
            if let Some(walk) = unwinder.unfinished(recording) {
                // SAFETY: as above.
                let stack =
                    unsafe { walker.kept(layout, thread as usize, codes, recording, walk)? };
                return Some(Placed::Later(recording.thread(os_id)?, Box::new(stack)));
            }
            // SAFETY: as above.
            unsafe {
                walker.stack_with_native(layout, thread as usize, codes, recording, unwinder)?
            }
        }
    };
    Some(Placed::Now(recording.thread(os_id)?, stack))
}

/// The labels of the calling thread.
pub fn labels(recording: &mut Recording<'_>) -> Option<LabelSetId> {
    // SAFETY: there is a recording, and this is the only use of the state in this thread.
    let Some(state) = (unsafe { STATE.beside_recording() }).as_mut() else {
        return of_process(recording);
    };
    // SAFETY: no preconditions.
    let os_id = u64::from(unsafe { libc::gettid() }.cast_unsigned());
    match living(state, os_id) {
        // SAFETY: the calling thread's own state.
        Some(thread) => unsafe { labels::of_thread(thread as usize, recording) },
        None => of_process(recording),
    }
}

/// The calling thread's own state, if it still exists. It does if it is attached: nobody can delete such a state. Before 3.12,
/// the attached one belongs to the thread with the GIL, whichever that is, and may have the place of a deleted one. Otherwise
/// the number of the thread is read from it, through the kernel, because the memory may be gone; it costs two system calls.
/// Where the system forbids that, and in the child of a `fork` that Python does not know of, there is none.
///
/// From 3.12 on, a thread that deletes another thread's state loses the note of its own. Then the attached one is its own.
///
/// A state may be deleted after the answer, but only once its thread has left Python: then it has no frames.
fn living(state: &State, os_id: u64) -> Option<*mut c_void> {
    // SAFETY: callable at any time, in any thread.
    let (own, attached) = unsafe {
        (
            (state.api.PyGILState_GetThisThreadState)(),
            (state.api.PyThreadState_GetUnchecked)(),
        )
    };
    if state.layout.features.own_gils && (own.is_null() || attached == own) {
        return (!attached.is_null()).then_some(attached);
    }
    let address = (own as usize).wrapping_add(state.layout.native_thread_id);
    let is_alive =
        !own.is_null() && Probe::new().and_then(|probe| probe.read(address)) == Some(os_id);
    is_alive.then_some(own)
}
