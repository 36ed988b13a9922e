//! The signal handler: it walks the stack of its thread and stores a tick.
//!
//! It may interrupt a sample, whose code needs stack as well, in a thread that has little. Then it does not walk: the tick
//! says that the thread was in nthbyte. Where there is not even room for that, the tick is lost.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::keep_errno;
use nthbyte_host::process::CachedProbe;
use nthbyte_session::ticks::{LONGEST_STACK, TICKS, Walked};
use nthbyte_session::timers;
use nthbyte_unwind::Registers;

use super::walk::LAYOUT;
use super::words::bits;
use super::{collecting, walk};
use crate::api::Api;
use crate::labels;
use crate::layout::Layout;

/// Reads the program's memory. Only the handler that holds the lock of the ticks uses it.
struct ProbeCell(UnsafeCell<Option<CachedProbe>>);
// SAFETY: see the type; `prepare` runs while no handler stores ticks.
unsafe impl Sync for ProbeCell {}

static MEMORY: ProbeCell = ProbeCell(UnsafeCell::new(None));

/// Whether ticks have the stack of native code.
static WITH_NATIVE: AtomicBool = AtomicBool::new(false);

/// Called when a session begins.
pub fn with_native_frames(is_wanted: bool) {
    if is_wanted {
        nthbyte_unwind::prepare();
    }
    WITH_NATIVE.store(is_wanted, Relaxed);
}

/// Prepares the reads of this process. Called before ticks are stored, in each process.
pub fn prepare() {
    // SAFETY: no ticks are stored, so no handler uses it.
    unsafe { *MEMORY.0.get() = Some(CachedProbe::new()) };
}

/// The stack that a walk needs, and that a tick without one needs, in bytes. A test measures both.
const ROOM_TO_WALK: usize = 4096;
const ROOM_TO_STORE: usize = 2048;

/// The handler. A signal that no timer of ours has sent is ignored, as by default.
pub unsafe extern "C" fn tick(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    keep_errno(|| {
        // SAFETY: the kernel passes it.
        if let Some(samples) = unsafe { timers::samples_of(info) } {
            let is_inside = nthbyte_session::is_recording_here();
            let needed = if is_inside {
                ROOM_TO_STORE
            } else {
                ROOM_TO_WALK
            };
            // SAFETY: the kernel passes the context of this thread.
            if !unsafe { timers::has_room(context, needed) } {
                TICKS.lose_several(samples);
            } else if is_inside {
                store_inside(samples);
            } else {
                // SAFETY: as above.
                unsafe { store_walked(samples, context) };
            }
        }
    });
}

/// Stores a tick that has interrupted nthbyte's own code.
#[inline(never)]
fn store_inside(samples: u64) {
    if TICKS.are_wanted() {
        TICKS.store_samples(bits::IS_INSIDE | samples.min(bits::SAMPLES), samples, &[]);
    }
}

/// Stores a tick with the stack of the calling thread.
///
/// # Safety
/// `context` is the third argument of a handler with `SA_SIGINFO`, which runs in this thread.
#[inline(never)]
unsafe fn store_walked(samples: u64, context: *const c_void) {
    let registers = WITH_NATIVE
        .load(Relaxed)
        // SAFETY: by the contract.
        .then(|| unsafe { Registers::of_context(context) });
    store(samples, registers);
}

/// Stores a tick of the calling thread that stands for this many samples.
fn store(samples: u64, registers: Option<Registers>) {
    let (true, Some(layout), Ok(api)) = (TICKS.are_wanted(), LAYOUT.get(), Api::get()) else {
        return;
    };
    TICKS.store_walked(samples, |room: &mut [u8; LONGEST_STACK]| {
        // SAFETY: this thread holds the lock of the ticks, and ticks are stored only after `prepare`.
        let memory = unsafe { &*MEMORY.0.get() }.as_ref()?;
        memory.clear();
        let room = room.as_chunks_mut::<8>().0;
        let (first, stack) = match registers {
            Some(_) => room.split_at_mut(Registers::WORDS),
            None => room.split_at_mut(0),
        };
        let (mut word, words) = this_thread(layout, api, memory, registers.is_some(), stack)?;
        if let Some(registers) = registers {
            word |= bits::HAS_REGISTERS;
            for (place, register) in first.iter_mut().zip(registers.to_words()) {
                *place = register.to_ne_bytes();
            }
        }
        Some(Walked {
            word: word | samples.min(bits::SAMPLES),
            length: 8 * (first.len() + words),
            memory: registers.map_or(0..0, Registers::stack),
        })
    });
}

/// The stack of the calling thread: the word of the tick, and the number of words in `stack`.
fn this_thread(
    layout: &Layout,
    api: &Api,
    memory: &CachedProbe,
    with_calls: bool,
    stack: &mut [[u8; 8]],
) -> Option<(u64, usize)> {
    // SAFETY: both are safe in a signal handler: they read variables of the thread, or, before 3.12, of the process.
    // CPython calls them in its own handlers of signals and faults.
    let (attached, own) = unsafe {
        (
            (api.PyThreadState_GetUnchecked)() as usize,
            (api.PyGILState_GetThisThreadState)() as usize,
        )
    };
    // SAFETY: no preconditions, and safe in a signal handler.
    let thread = unsafe { libc::gettid() }.cast_unsigned() as usize;
    let is_of_this_thread = |state: usize| {
        state != 0 && memory.word(state.wrapping_add(layout.native_thread_id)) == Some(thread)
    };
    // Before 3.12, the first one is the state of the thread that holds the GIL, whichever that is.
    let has_gil = attached != 0
        && (layout.features.own_gils || attached == own || is_of_this_thread(attached));
    let state = if has_gil { attached } else { own };
    if state == 0 {
        return Some((0, 0));
    }
    // A thread state without the GIL may be gone: another thread has ended the interpreter.
    if !has_gil && !is_of_this_thread(state) {
        return None;
    }
    let collection = collecting::here();
    let walked = walk::walk(layout, memory, state, collection, with_calls, stack)?;
    let labels = u64::from(labels::number_of_thread(state, memory));
    let mut word = if has_gil { bits::HAS_GIL } else { 0 } | labels << bits::LABELS;
    if walked.is_cut {
        word |= bits::IS_CUT;
    }
    if let Some(collection) = collection {
        word |= u64::from(collection.generation) << bits::GENERATION;
    }
    Some((word, walked.words))
}
