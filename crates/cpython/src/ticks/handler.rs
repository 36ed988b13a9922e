//! The signal handler: it walks the stack of its thread and stores a tick.
//!
//! The signal is `SIGURG`, as in Go's runtime: hardly any program uses it, and its default action is to ignore it. So a
//! program that resets all signals loses time samples, and is not killed. If the program has a handler for it, a real-time
//! signal takes its place, also if the handler comes later: then it may get a few of our signals. `SIGPROF` and `ITIMER_PROF` stay the program's.
//!
//! The handler stays when a session ends: a signal may still be on its way.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

use nthbyte_session::process::CachedProbe;
use nthbyte_session::ticks::{LONGEST_STACK, TICKS, Walked};
use nthbyte_unwind::Registers;

use super::walk::LAYOUT;
use super::words::bits;
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

/// Reads the program's memory. Only the handler that holds the lock of the ticks uses it.
struct Memory(UnsafeCell<Option<CachedProbe>>);
// SAFETY: see the type; `prepare` runs while no handler stores ticks.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new(None));

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

/// Whether the program has a handler of its own for the signal by now.
pub fn is_taken() -> bool {
    let action = action_of(SIGNAL.load(Relaxed));
    let ours = [tick as *const () as usize, libc::SIG_DFL, libc::SIG_IGN];
    action.is_some_and(|action| !ours.contains(&action))
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
unsafe extern "C" fn tick(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
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
        // SAFETY: the kernel passes the registers of this thread.
        let registers = WITH_NATIVE
            .load(Relaxed)
            .then(|| unsafe { Registers::of_context(context) });
        store(timely, registers);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
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
    let mut word = if has_gil { bits::HAS_GIL } else { 0 };
    if walked.is_cut {
        word |= bits::IS_CUT;
    }
    if let Some(collection) = collection {
        word |= u64::from(collection.generation) << bits::GENERATION;
    }
    Some((word, walked.words))
}
