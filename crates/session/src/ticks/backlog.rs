//! The ticks that wait, and who has the host record them: the writer thread between two blocks, and the thread that ends the
//! session.

use std::time::Duration;

use nthbyte_profile::event::{CpuSample, SourceId};

use super::store::{TICKS, Tick, TickSamples};
use super::timers;
use crate::begin::{let_writer_run, record_now, wait_for_room};
use crate::contract::{Host, UnfinishedStack};
use crate::native::unfinished;
use crate::recording::Recording;

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

impl Recording<'_> {
    /// Keeps the samples of a tick until the rest of its stack is known, which `stack` has. Only if
    /// [`may_wait`](crate::native::may_wait) has allowed it. Returns what the function of [`Recording::ticks`] returns
    /// then; `None` if there is no room.
    pub fn keep(
        &mut self,
        tick: &Tick<'_>,
        place: TickSamples,
        stack: Box<dyn UnfinishedStack>,
    ) -> Option<TickSamples> {
        let sample = CpuSample {
            time: self.at(tick.monotonic_nanos),
            thread: self.thread(tick.thread)?,
            stack: place.stack,
            labels: place.labels,
            source: SourceId::TIME,
        };
        unfinished::add_time(self, sample, place.samples, stack);
        Some(TickSamples::KEPT)
    }

    /// Records the time samples of at most `most` ticks that have arrived since the last call. Returns the number of
    /// ticks that were read. See [`crate::ticks`].
    pub fn ticks(
        &mut self,
        most: usize,
        place: impl FnMut(&mut Self, &Tick<'_>) -> Option<TickSamples>,
    ) -> usize {
        TICKS.record(self, most, place)
    }
}
