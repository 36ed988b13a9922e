//! How a recording begins, and waits for room.

use std::time::Instant;

use nthbyte_host::memory;
use nthbyte_host::threads::uncancelled;
use nthbyte_profile::event::LostKind;

use crate::recording::{NAP, Recording};
use crate::registry::{self, SessionSlot};
use crate::ring;

/// Begins a recording. The caller has acquired the slot's lock. If there is no memory for it, one event of the given kind is
/// lost.
#[inline(always)]
pub(crate) fn begin_with_lock(
    slot: &'static SessionSlot,
    wanted_for: Option<LostKind>,
) -> Option<Recording<'static>> {
    if slot.is_running()
        && has_memory(slot)
        // SAFETY: the lock was acquired, and is released when the recording is dropped.
        && let Some(recorder) = unsafe { slot.recorder() }
    {
        return Some(Recording::begin(recorder, wanted_for));
    }
    if slot.is_running()
        && let Some(kind) = wanted_for
    {
        slot.lost.add(kind, 1);
    }
    slot.lock.release();
    None
}

/// Whether there is memory for a recording. The caller holds the lock.
#[inline]
fn has_memory(slot: &'static SessionSlot) -> bool {
    !memory::is_short() && (!slot.fork.is_child() || child_has_memory(slot))
}

/// Whether a child that begins its own profile has memory for it.
#[cold]
pub(crate) fn child_has_memory(slot: &'static SessionSlot) -> bool {
    // SAFETY: the caller holds the lock.
    let recorder = unsafe { slot.recorder() };
    recorder.as_ref().is_none_or(|recorder| {
        memory::has(ring::first_bytes(recorder.meta(), recorder.pace.is_auto()))
    })
}

/// Whether the calling thread is inside of a recording, or begins or ends one: a signal handler asks, which has interrupted
/// it. Safe there.
#[must_use]
pub fn is_recording_here() -> bool {
    registry::slots().any(|slot| slot.lock.is_held_by_caller())
}

/// Begins a recording in the running session of this process, for code that has no [`Session`](crate::Session): the
/// writer thread's work for the host, for example. `None` if there is no session, if recording is not possible now, or if this
/// process is the child of a fork that has not begun its own profile. Counts nothing as lost.
#[must_use]
pub fn record_now() -> Option<Recording<'static>> {
    let slot = registry::slots().find(|slot| slot.is_running() && !slot.fork.is_child())?;
    let is_ours = slot.lock.acquire();
    is_ours.then(|| begin_with_lock(slot, None)).flatten()
}

/// Begins a recording in the running session of this process, as [`Session::record`](crate::Session::record) does, for code
/// that has no [`Session`](crate::Session).
#[must_use]
pub fn record_for(kind: LostKind) -> Option<Recording<'static>> {
    let slot = registry::slots().find(|slot| slot.is_running())?;
    if !slot.lock.acquire() {
        slot.lost.add(kind, 1);
        return None;
    }
    begin_with_lock(slot, Some(kind))
}

/// Decides about the periods of the session where no sample does that: see [`crate::pace`]. The writer thread calls it.
pub(crate) fn decide_if_idle() {
    let is_idle = |slot: &&SessionSlot| slot.is_running() && slot.spent.is_idle(slot.clock().now());
    if registry::slots().any(|slot| is_idle(&slot))
        && let Some(recording) = record_now()
    {
        recording.recorder.decide(recording.now());
    }
}

/// Starts the writer thread that a fork has stopped. If a thread is inside a recording for long, its next one starts the
/// writer thread.
pub fn let_writer_run() {
    for slot in registry::slots().filter(|slot| slot.is_running()) {
        // If another thread has the lock, its next recording starts the thread.
        if slot.fork.let_writer_run() && slot.lock.acquire() {
            drop(begin_with_lock(slot, None));
        }
    }
}

/// Waits until so many events fit into the ring of this process's session, and returns whether they do. The caller is not
/// inside a recording, and is not the writer thread. As long as the writer thread makes room, the wait goes on;
/// otherwise it has a limit. It does not begin where the writer thread cannot run: while a fork has stopped it, for
/// example. Other threads may take the room before the caller does.
#[must_use]
pub fn wait_for_room(events: usize) -> bool {
    let mut most = 0;
    let mut until = None;
    loop {
        let Some(recording) = record_now() else {
            return false;
        };
        let room = recording.room();
        if room >= events {
            return true;
        }
        let now = Instant::now();
        let limit = now + recording.recorder.longest_wait();
        if room > most {
            (most, until) = (room, None);
        }
        if now >= *until.get_or_insert(limit) {
            recording.recorder.has_waited();
            return false;
        }
        if !recording.recorder.may_wait() {
            return false;
        }
        drop(recording);
        uncancelled(|| std::thread::sleep(NAP));
    }
}

/// Has the writer thread write all data so far to the profile, and waits for it, for some seconds at most. Returns whether the
/// file has it. The caller is not inside a recording.
#[must_use]
pub fn flush() -> bool {
    let Some(recording) = record_now() else {
        return false;
    };
    let until = Instant::now() + recording.recorder.longest_wait();
    let flush = recording.recorder.writer().ask_to_flush();
    drop(recording);
    while !flush.is_done() {
        if Instant::now() >= until {
            return false;
        }
        uncancelled(|| std::thread::sleep(NAP));
    }
    true
}
