//! Waits for room in the ring, for work that records more than the ring holds: time samples that have piled up, for example.

use std::time::Instant;

use crate::cancellation::uncancelled;
use crate::recorder::NAP;
use crate::recording::record_now;

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
