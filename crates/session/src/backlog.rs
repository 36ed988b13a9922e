//! The ticks that wait, and who has the host record them: the writer thread between two blocks, and the thread that ends the
//! session.

use std::time::Duration;

use crate::fork::let_writer_run;
use crate::host::Host;
use crate::recording::record_now;
use crate::room::wait_for_room;
use crate::ticks::TICKS;
use crate::timers;

/// Free slots of the ring without which no ticks are recorded: more than a call of [`Host::record_ticks`] needs. The
/// writer thread empties the ring, so it must not wait for room.
pub const ROOM_FOR_TICKS: usize = 512;

/// Called by the writer thread between two blocks. Returns the longest time until the next call; `None` without timers.
pub(crate) fn keep(host: &dyn Host) -> Option<Duration> {
    if !timers::are_wanted() {
        return None;
    }
    let next = timers::keep();
    record_with_room(host);
    Some(next)
}

/// Has the host record the ticks that wait, as far as the ring has room. Returns whether more wait.
pub(crate) fn record_with_room(host: &dyn Host) -> bool {
    while TICKS.are_waiting() {
        let Some(mut recording) = record_now() else {
            return true;
        };
        if recording.room() < ROOM_FOR_TICKS {
            return true;
        }
        if host.record_ticks(&mut recording) == 0 {
            return false;
        }
    }
    false
}

/// Has the host record all ticks that wait, when the session ends and its timers have stopped.
pub fn record_waiting(host: &dyn Host) {
    // A fork may have stopped it, and more ticks may wait than the ring holds.
    let_writer_run();
    while TICKS.are_waiting() {
        // Without room, they are lost, and counted.
        let _ = wait_for_room(ROOM_FOR_TICKS);
        let recorded = record_now().map(|mut recording| host.record_ticks(&mut recording));
        if recorded.is_none_or(|recorded| recorded == 0) {
            return;
        }
    }
    if let Some(mut recording) = record_now() {
        // What the timers have lost.
        host.record_ticks(&mut recording);
    }
}
