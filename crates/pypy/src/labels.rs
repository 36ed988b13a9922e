//! Labels: what each thread says that it is working on.
//!
//! PyPy's contexts are Python objects, which only Python can read. So `nthbyte._pypy_labels` tells the set in force whenever that changes: when
//! a label is entered or left, and when a thread's context is another one. A thread is known by its `pthread_self`, which is no system call.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use nthbyte_profile::event::LabelSetId;
use nthbyte_session::Recording;
use nthbyte_session::labels::{self, Names};

/// Threads that may have labels, and places that are looked at for one.
const MOST_THREADS: usize = 1 << 12;
const LOOKED_AT: usize = 64;

/// A thread, and the number of its labels. Only the thread itself writes the latter.
struct ThreadLabels {
    thread: AtomicUsize,
    number: AtomicU32,
}

static PLACES: [ThreadLabels; MOST_THREADS] = [const {
    ThreadLabels {
        thread: AtomicUsize::new(0),
        number: AtomicU32::new(0),
    }
}; MOST_THREADS];

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

fn this_thread() -> usize {
    // SAFETY: no preconditions. It reads a register.
    unsafe { libc::pthread_self() as usize }
}

fn places(thread: usize) -> impl Iterator<Item = &'static ThreadLabels> {
    // Such addresses are multiples of 64 that often lie 8 MiB apart.
    let first = (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (first..first + LOOKED_AT).map(|at| &PLACES[at % MOST_THREADS])
}

/// Sets the labels in force of the calling thread.
pub fn set(number: u32) {
    let thread = this_thread();
    for place in places(thread) {
        let known = place.thread.load(Relaxed);
        let is_ours = known == thread
            || known == 0
                && place
                    .thread
                    .compare_exchange(0, thread, Relaxed, Relaxed)
                    .is_ok();
        if is_ours {
            place.number.store(number, Relaxed);
            return;
        }
    }
}

/// The labels in force of the calling thread. `None` if there is no room to record them.
pub fn here(recording: &mut Recording<'_>) -> Option<LabelSetId> {
    if !ARE_USED.load(Acquire) {
        return labels::of_process(recording);
    }
    let thread = this_thread();
    for place in places(thread) {
        match place.thread.load(Relaxed) {
            known if known == thread => {
                let set = labels::of_number(place.number.load(Relaxed));
                return match set {
                    Some(set) => set.recorded(recording),
                    None => labels::of_process(recording),
                };
            }
            0 => break,
            _ => {}
        }
    }
    labels::of_process(recording)
}

/// Whether a set was ever defined.
static ARE_USED: AtomicBool = AtomicBool::new(false);

/// The number of a set: its keys and values, with `\x1f` between them. 0 if there are too many sets.
pub fn define(text: &str) -> u32 {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    let all = names.parse(text);
    ARE_USED.store(true, Release);
    let set = names.with(None, &all);
    if labels::of_number(set.number).is_some() {
        set.number
    } else {
        0
    }
}
