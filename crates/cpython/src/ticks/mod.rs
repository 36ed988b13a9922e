//! Time samples: the Python stacks of threads that use the processor.
//!
//! ```text
//! timers ─ a timer for each thread, on its own CPU clock ─▶ signal ─▶ handler ─▶ walk ─▶ session's ticks
//!    ▲                                                                                        │
//! session (writer thread): finds threads, and records ticks ◀─ resolve ◀───────────────────────┘
//! ```
//!
//! The handler runs between any two instructions of the thread: it may hold any lock, and its frames may be half
//! changed. So the handler takes no lock that it would wait for, allocates nothing, and reads all memory through the
//! kernel, which answers a bad address with an error. It stores a word for each frame: the address of the code object
//! and the position in it. With native frames, it also stores the registers, and has the kernel copy the stack of native
//! code.
//!
//! Later, another thread turns these words into functions. That works as long as the code objects live: before one is
//! freed, [`before_code_is_freed`] records all ticks that are waiting. A thread in the handler keeps the code objects of
//! its frames alive until its tick is stored. Native frames are walked then too, from the copy. If they lead to a library
//! that is not known yet, the tick waits with its Python frames until the writer thread has looked at the library.

mod collecting;
mod handler;
pub mod own_threads;
mod resolve;
mod thread_locals;
mod walk;
mod words;

use nthbyte_host::process::Probe;
use nthbyte_session::ticks::TICKS;
use nthbyte_session::{ROOM_FOR_TICKS, Rate, Recording, record_now, timers, wait_for_room};

use crate::api::Api;
use crate::layout::Layout;
use resolve::Resolver;
use walk::LAYOUT;

pub use collecting::{collection_ended, collection_started};
pub use nthbyte_session::timers::{end as stop_timers, thread_has_started};

/// Ticks that are recorded under one lock: other threads wait for it meanwhile.
const AT_ONCE: usize = 16;

/// Begins to take time samples in the calling thread, with the frames of native code if these are recorded. The session's
/// writer thread finds the others. Returns the rate, which may be lower than `hz`.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(
    layout: &Layout,
    hz: u32,
    seed: u64,
    with_native_frames: bool,
) -> Result<Rate, String> {
    if Probe::new().is_none() {
        return Err(
            "--cpu needs process_vm_readv, which this system forbids; allow it, or leave --cpu out"
                .to_owned(),
        );
    }
    if layout.features.own_gils
        && let Ok(api) = Api::get()
        && !thread_locals::are_in_each_thread(api.PyThreadState_GetUnchecked as *const () as usize)
    {
        return Err(
            "--cpu is not possible where a running program has loaded CPython (dlopen); leave --cpu out, or link the program with CPython's library"
                .to_owned(),
        );
    }
    LAYOUT.get_or_init(|| *layout);
    let rate = Rate::possible(hz);
    handler::prepare();
    handler::with_native_frames(with_native_frames);
    collecting::collection_ended();
    TICKS
        .begin(true)
        .map_err(|why| format!("--cpu needs memfd_create, which failed here: {why}"))?;
    if let Err(why) = timers::begin(handler::tick, rate, seed) {
        end();
        return Err(why);
    }
    Ok(rate)
}

/// Called in the child of a fork when its profile begins. Timers are not inherited.
pub fn begin_in_child() {
    if !TICKS.are_wanted() {
        return;
    }
    handler::prepare();
    collecting::collection_ended();
    // Without a file or a timer, the child has no time samples. Nothing else depends on them.
    if TICKS.begin(true).is_ok() {
        timers::begin_in_child();
    }
}

/// Records some ticks. `dying` is a code object that is being freed.
pub fn record_some(recording: &mut Recording<'_>, dying: Option<usize>) -> usize {
    let (Some(layout), Ok(api)) = (LAYOUT.get(), Api::get()) else {
        return 0;
    };
    let mut resolver = Resolver::new(layout, api, dying);
    recording.ticks(AT_ONCE, |recording, tick| resolver.place(recording, tick))
}

/// Stops taking time samples. Ticks that are not recorded are discarded.
pub fn end() {
    timers::end();
    TICKS.end();
}

/// Called when a code object is about to be freed, with the GIL of any interpreter held, if there is one: a waiting tick may refer to it.
/// Who records ticks meanwhile has the session's lock, for which [`forget_code`] and its like wait before the object is freed.
pub fn before_code_is_freed(code: usize) {
    while TICKS.are_waiting() {
        let _ = wait_for_room(ROOM_FOR_TICKS);
        let recorded = record_now().map(|mut recording| record_some(&mut recording, Some(code)));
        if recorded.is_none_or(|recorded| recorded == 0) {
            // Another thread may have recorded them meanwhile.
            if TICKS.are_waiting() {
                TICKS.distrust();
            }
            return;
        }
    }
}

/// Removes the key of a code object that is about to be freed, if the agent cannot: its interpreter has its own GIL.
pub fn forget_code(code: usize) {
    if TICKS.are_wanted()
        && let Some(mut recording) = record_now()
    {
        recording.forget_function(code as u64);
    }
}
