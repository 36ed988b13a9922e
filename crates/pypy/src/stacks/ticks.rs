//! Time samples: the stacks of threads that use the processor.
//!
//! The timers are the session's ([`nthbyte_session::timers`]), one for each thread. Their handler calls `_vmprof`'s handler,
//! which walks the stack, and stores its record. The writer thread turns records into stacks of the profile: it needs no
//! lock of the interpreter for that, because the numbers of code objects are never used again, and `_vmprof` has written
//! their names.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::keep_errno;
use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_session::ticks::{TICKS, Tick, TickSamples};
use nthbyte_session::{Rate, Recording, timers};

use super::handler::{NAPS_OF_A_TICK, RECORD_TAKEN, WALKING, Walk, Work, done, walk};
use super::record::{RawFrame, decode};
use super::tree::node_of_frames;
use nthbyte_rpython::binary::thread_pointer;

/// The stack that a walk needs, and that a tick without one needs, in bytes.
const ROOM_TO_WALK: usize = 5632;
const ROOM_TO_STORE: usize = 2048;

/// Ticks that are recorded under one lock: other threads wait for it meanwhile.
const AT_ONCE: usize = 16;

/// The word of a tick: the work of the collector, whether it has interrupted nthbyte, and from this bit on the samples that
/// it stands for.
const WORK: u64 = 0xff;
const IS_INSIDE: u64 = 1 << 8;
const SAMPLES: u32 = 16;

/// Begins to take time samples.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(rate: Rate, seed: u64) -> Result<(), String> {
    timers::begin(tick, rate, seed)
}

/// Continues in the child of a fork, which has no timers.
pub fn begin_in_child() {
    if TICKS.are_wanted() {
        timers::begin_in_child();
    }
}

/// Records some of the ticks that wait. Returns their number.
pub fn record_some(recording: &mut Recording<'_>) -> usize {
    let mut frames = Vec::new();
    recording.ticks(AT_ONCE, |recording, tick| {
        place(recording, tick, &mut frames)
    })
}

/// The place of a tick. `None` if there is no room.
fn place(
    recording: &mut Recording<'_>,
    tick: &Tick<'_>,
    frames: &mut Vec<RawFrame>,
) -> Option<TickSamples> {
    let place = if tick.word & IS_INSIDE != 0 {
        TickSamples::inside(recording)?
    } else {
        frames.clear();
        frames.extend(decode(tick.stack));
        let stack = node_of_frames(recording, frames)?;
        TickSamples::of(match Work::from_word(tick.word & WORK) {
            Some(work) => collecting(recording, stack, work)?,
            None => stack,
        })
    };
    Some(TickSamples {
        samples: (tick.word >> SAMPLES) as u32,
        ..place
    })
}

/// The node of `stack` with the collector as its innermost frame.
fn collecting(recording: &mut Recording<'_>, stack: NodeId, work: Work) -> Option<NodeId> {
    let name = match work {
        Work::Minor => "minor collection",
        Work::Major => "major collection",
    };
    recording.named_node(stack, name, FrameKind::Gc)
}

/// The handler. A signal that no timer of ours has sent is ignored, as by default.
unsafe extern "C" fn tick(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    keep_errno(|| {
        // SAFETY: the kernel passes it.
        if let Some(samples) = unsafe { timers::samples_of(info) } {
            let is_inside =
                WALKING.load(Relaxed) == thread_pointer() || nthbyte_session::is_recording_here();
            let needed = if is_inside {
                ROOM_TO_STORE
            } else {
                ROOM_TO_WALK
            };
            // SAFETY: the kernel passes the context of this thread.
            let is_stored = unsafe { timers::has_room(context, needed) }
                && if is_inside {
                    store(IS_INSIDE, samples, &[]);
                    true
                } else {
                    store_walked(samples, info, context)
                };
            if !is_stored {
                TICKS.lose_several(samples);
            }
        }
    });
}

/// Stores a tick with the stack of the calling thread. Returns false if it cannot be walked.
#[inline(never)]
fn store_walked(samples: u64, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let work = Work::here().map_or(0, Work::word);
    match walk(libc::SIGPROF, info, context, NAPS_OF_A_TICK, None) {
        Walk::Record(length) => {
            // SAFETY: this thread holds `WALKING`.
            let record = unsafe { &*RECORD_TAKEN.0.get() };
            store(work, samples, &record[..length]);
            done();
            true
        }
        Walk::Empty => {
            store(work, samples, &[]);
            true
        }
        Walk::Unable => false,
    }
}

fn store(word: u64, samples: u64, record: &[u8]) {
    if TICKS.are_wanted() {
        TICKS.store_samples(word | samples << SAMPLES, samples, record);
    }
}
