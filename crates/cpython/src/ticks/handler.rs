//! The signal handler: it walks the stack of its thread and stores a tick.
//!
//! The signal is `SIGURG`, as in Go's runtime: hardly any program uses it, and its default action is to ignore it. So a
//! program that resets all signals loses time samples, and is not killed. If the program has a handler for it already, a
//! real-time signal takes its place. `SIGPROF` and `ITIMER_PROF` stay the program's.
//!
//! The handler stays when a session ends: a signal may still be on its way.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_session::process::CachedProbe;
use nthbyte_session::ticks::{LONGEST_STACK, TICKS};

use super::walk::LAYOUT;
use super::{collecting, timers, walk};
use crate::api::Api;
use crate::layout::Layout;

/// The installed signal; 0 if there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// `SI_TIMER` of a signal that a timer of `timer_create` has sent (`include/uapi/asm-generic/siginfo.h`).
const SI_TIMER: c_int = -2;

/// `siginfo_t` of such a signal.
#[repr(C)]
struct TimerInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _padding: c_int,
    timer: c_int,
    overrun: c_int,
    value: usize,
}

/// The words of a tick.
pub mod word {
    /// The number of samples: the lowest bits.
    pub const SAMPLES: u64 = 0xffff;
    /// Whether the thread held the GIL.
    pub const HAS_GIL: u64 = 1 << 16;
    /// Whether outer frames are missing.
    pub const IS_CUT: u64 = 1 << 17;
    /// Whether the thread runs a collection, of the generation in the next 8 bits, and the number of frames inside of
    /// it above that.
    pub const COLLECTS: u64 = 1 << 18;
    /// See [`COLLECTS`].
    pub const GENERATION: u32 = 19;
    /// See [`COLLECTS`].
    pub const INSIDE: u32 = 32;
}

/// Reads the program's memory. Only the handler that holds the lock of the ticks uses it.
struct Memory(UnsafeCell<Option<CachedProbe>>);
// SAFETY: see the type; `prepare` runs while no handler stores ticks.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new(None));

/// Prepares the reads of this process. Called before ticks are stored, in each process.
pub fn prepare() {
    // SAFETY: no ticks are stored, so no handler uses it.
    unsafe { *MEMORY.0.get() = Some(CachedProbe::new()) };
}

/// Installs the handler, and returns its signal.
///
/// # Errors
/// One line: the program uses all possible signals.
pub fn install() -> Result<c_int, String> {
    let installed = SIGNAL.load(Relaxed);
    if installed != 0 && action_of(installed) == Some(tick as *const () as usize) {
        return Ok(installed);
    }
    let real_time = (libc::SIGRTMIN()..libc::SIGRTMAX() - 1).rev();
    let signal = std::iter::once(libc::SIGURG)
        .chain(real_time)
        .find(|&signal| action_of(signal) == Some(libc::SIG_DFL))
        .ok_or("the program handles every signal that --cpu could use; leave --cpu out")?;
    // SAFETY: zero is a valid value of the struct, and the handler has the type that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
            return Err("cannot install a signal handler for --cpu".to_owned());
        }
    }
    SIGNAL.store(signal, Relaxed);
    Ok(signal)
}

/// The action of a signal.
fn action_of(signal: c_int) -> Option<usize> {
    // SAFETY: zero is a valid value of the struct, which the call fills in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal, std::ptr::null(), &raw mut action);
        (asked == 0).then_some(action.sa_sigaction)
    }
}

/// The handler. A signal that no timer of ours has sent is ignored, as by default.
unsafe extern "C" fn tick(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a `siginfo_t`, which is larger; other signals have other data in the same bytes.
    let info = unsafe { info.cast::<TimerInfo>().read() };
    if info.code != SI_TIMER {
        return;
    }
    // SAFETY: errno belongs to the thread; it is restored below, as the interrupted code expects.
    let errno = unsafe { *libc::__errno_location() };
    let expired = 1 + u64::from(info.overrun.max(0).cast_unsigned());
    if let Some(timely) = timers::delivered(info.value, expired) {
        TICKS.lose_several(expired - timely);
        store(timely);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Stores a tick of the calling thread that stands for this many samples.
fn store(samples: u64) {
    let (true, Some(layout), Ok(api)) = (TICKS.are_wanted(), LAYOUT.get(), Api::get()) else {
        return;
    };
    TICKS.store_walked(samples, |stack| {
        // SAFETY: this thread holds the lock of the ticks, and ticks are stored only after `prepare`.
        let memory = unsafe { &*MEMORY.0.get() }.as_ref()?;
        memory.clear();
        let (word, frames) = this_thread(layout, api, memory, stack)?;
        Some((word | samples.min(word::SAMPLES), 8 * frames))
    });
}

/// The stack of the calling thread: its word, and the number of frames in `stack`.
fn this_thread(
    layout: &Layout,
    api: &Api,
    memory: &CachedProbe,
    stack: &mut [u8; LONGEST_STACK],
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
    let walked = walk::walk(layout, memory, state, collection, stack)?;
    let mut word = if has_gil { word::HAS_GIL } else { 0 };
    if walked.is_cut {
        word |= word::IS_CUT;
    }
    if let (Some(collection), Some(inside)) = (collection, walked.inside) {
        word |= word::COLLECTS
            | u64::from(collection.generation) << word::GENERATION
            | (inside as u64) << word::INSIDE;
    }
    Some((word, walked.frames))
}
