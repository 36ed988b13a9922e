//! The signal of the timers.
//!
//! It is `SIGURG`, as in Go's runtime: hardly any program uses it, and its default action is to ignore it. So a program
//! that resets all signals loses time samples, and is not killed. If the program has a handler for it, a real-time signal
//! takes its place, also if the handler comes later: then it may get a few of our signals. `SIGPROF` and `ITIMER_PROF` stay
//! the program's.
//!
//! The handler stays when a session ends: a signal may still be on its way.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};

use crate::ticks::TICKS;

/// The largest number of threads that have timers at the same time.
pub(super) const MOST: usize = 1 << 14;
/// The upper half of the value that our timers send, so that a handler knows them.
pub(super) const MARK: usize = 0x6e74_6862;
/// The number of expirations that one signal may stand for: the kernel's looks may be late by some periods, on a machine
/// that others use too. More means that the thread has blocked the signal, and its stack is not the stack of the earlier ones.
const TIMELY: u64 = 5;
/// Expirations that have arrived, by the number of the timer.
pub(super) static DELIVERED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// A host's handler.
pub type TickHandler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The installed signal and its handler; 0 if there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static HANDLER: AtomicUsize = AtomicUsize::new(0);

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

/// Installs a handler, and returns its signal.
///
/// # Errors
/// One line: the program uses all possible signals.
pub(super) fn install(handler: TickHandler) -> Result<c_int, String> {
    HANDLER.store(handler as *const () as usize, Relaxed);
    install_again()
}

/// Installs the same handler, if it is not installed any more.
///
/// # Errors
/// As [`install`].
pub(super) fn install_again() -> Result<c_int, String> {
    let (installed, handler) = (SIGNAL.load(Relaxed), HANDLER.load(Relaxed));
    if installed != 0 && action_of(installed) == Some(handler) {
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
        action.sa_sigaction = handler;
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
pub(super) fn is_taken() -> bool {
    let action = action_of(SIGNAL.load(Relaxed));
    let ours = [HANDLER.load(Relaxed), libc::SIG_DFL, libc::SIG_IGN];
    action.is_some_and(|action| !ours.contains(&action))
}

fn action_of(signal: c_int) -> Option<usize> {
    // SAFETY: zero is a valid value of the struct, which the call fills in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal, std::ptr::null(), &raw mut action);
        (asked == 0).then_some(action.sa_sigaction)
    }
}

/// The number of samples that a signal stands for: more than one if its timer expired more often than it arrived. Those
/// that do not belong to the present stack are counted as lost. `None` if no timer of ours has sent it. Safe in a signal
/// handler.
///
/// # Safety
/// `info` is the second argument of a handler with `SA_SIGINFO`.
#[must_use]
pub unsafe fn samples_of(info: *const libc::siginfo_t) -> Option<u64> {
    // SAFETY: the kernel passes a `siginfo_t`, which is larger; other signals have other data in the same bytes.
    let info = unsafe { info.cast::<TimerInfo>().read() };
    if info.code != SI_TIMER {
        return None;
    }
    let expired = 1 + u64::from(info.overrun.max(0).cast_unsigned());
    let timely = delivered(info.value, expired)?;
    if expired > timely {
        TICKS.lose_several(expired - timely);
    }
    Some(timely)
}

/// Counts expirations of a timer that have arrived together. Returns how many of them belong to the present stack;
/// `None` if the timer is not ours. Safe in a signal handler.
fn delivered(value: usize, expired: u64) -> Option<u64> {
    let count = DELIVERED.get(value & 0xffff_ffff)?;
    (value >> 32 == MARK).then(|| {
        count.fetch_add(expired, Relaxed);
        expired.min(TIMELY)
    })
}
