//! What would end the process for want of memory, watched by the writer thread: the limits of its control group, of its
//! addresses, and of the machine.
//!
//! A process that the kernel kills says nothing more. So the file must have what matters before: from three quarters of the
//! limit on, how much is in use; and at an *alarm* all that was recorded until then, on the disk, and who holds what, if there is
//! room for a snapshot. An alarm is raised at nine tenths of the limit, when the growth of the last seconds reaches it within
//! half a minute, or when processes wait for memory much of the time; once, with a pause before the next.
//!
//! ```text
//! limits   the limits, and the bytes in use
//! ```

mod limits;

use std::collections::VecDeque;
use std::path::PathBuf;

use nthbyte_profile::Pressure;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::pressure::{Alarm, MemoryLimit};

use limits::{Limits, Reading};

const SECOND: u64 = 1_000_000_000;
/// Between two readings; and where more than [`MUCH`] is in use. A reading takes some 30 µs of the writer thread.
const BETWEEN: u64 = SECOND;
const BETWEEN_WHEN_MUCH: u64 = SECOND / 5;
/// Between two looks for the limits themselves.
const BETWEEN_LOOKS: u64 = 10 * SECOND;
/// From this part of a limit on, readings are recorded.
const MUCH: f64 = 0.75;
/// From this part on, an alarm is raised.
const NEAR: f64 = 0.9;
/// A reading is recorded if it differs by this part of the limit from the last one.
const NOTICEABLE: u64 = 100;
/// A reading is made sooner if the process has grown by this part of the limit, a 20th; and recorded, whatever is in use, if twice as
/// much more is: one may be the last before the kernel kills.
const LEAP: u64 = 20;
/// An alarm is raised if the limit is reached within so many seconds, …
const SOON: f64 = 30.0;
/// … from this part of it on: a program that starts grows fast.
const SOON_FROM: f64 = 0.5;
/// The growth of so many seconds counts, and it is known after this part of them.
const OF_GROWTH: u64 = 10 * SECOND;
const KNOWN_AFTER: u64 = 2 * SECOND;
/// Tasks that wait for memory for this part of the time, in percent.
const STALLED: f64 = 40.0;
/// Between two alarms, and the growth between them, as a part of the limit: a 50th.
const PAUSE: u64 = 60 * SECOND;
const GROWN: u64 = 50;
/// The memory of the machine is watched by a process that has this part of it: a 16th. The kernel ends the largest ones.
const LARGE: u64 = 16;
/// A snapshot is taken if there is room for this, and for a part of the limit: a 32nd.
const ROOM_FOR_SNAPSHOT: u64 = 8 << 20;

/// Watches the limits of this process.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Limits,
    looked: Option<u64>,
    read: Option<u64>,
    /// What was in use at the last moments, with the limit.
    past: VecDeque<(u64, Reading)>,
    recorded: Option<Pressure>,
    /// When the last alarm was raised, and the least that was in use since then.
    alarmed: Option<(u64, u64)>,
    kills_before: Option<u64>,
    /// The resident set size at the last reading, and whether what it said is a reason for an alarm.
    resident: u64,
    is_near: bool,
}

/// What to record, and what to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) pressure: Pressure,
    /// Whether there is room for a snapshot.
    pub(crate) has_room: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self::below(PathBuf::from("/"))
    }
}

impl Watch {
    fn below(root: PathBuf) -> Self {
        Self {
            limits: Limits::below(root),
            looked: None,
            read: None,
            past: VecDeque::new(),
            recorded: None,
            alarmed: None,
            kills_before: None,
            resident: 0,
            is_near: false,
        }
    }

    /// Whether a limit is near, so that events must be in the file soon.
    pub(crate) const fn is_near(&self) -> bool {
        self.is_near
    }

    /// Reads the limits, if that is due, and returns a reading that is worth an event. `resident` is the resident set
    /// size.
    pub(crate) fn look(&mut self, now: Nanos, resident: u64) -> Option<Seen> {
        let now = now.0;
        let is_much = self.past.back().is_some_and(|(_, last)| part(last) >= MUCH);
        let most = self.past.back().map_or(u64::MAX, |(_, last)| last.most);
        let leaps = resident.saturating_sub(self.resident) >= most / LEAP;
        let between = if is_much || leaps {
            BETWEEN_WHEN_MUCH
        } else {
            BETWEEN
        };
        if self.read.is_some_and(|read| now < read + between) {
            return None;
        }
        self.read = Some(now);
        self.resident = resident;
        if self
            .looked
            .is_none_or(|looked| now >= looked + BETWEEN_LOOKS)
        {
            self.looked = Some(now);
            self.limits.look();
        }
        let is_ours =
            |one: &Reading| one.limit != MemoryLimit::Machine || resident >= one.most / LARGE;
        let Some(reading) = self.limits.nearest(is_ours) else {
            self.past.clear();
            self.is_near = false;
            return None;
        };
        let kills = self.limits.kills();
        let kills = kills.saturating_sub(*self.kills_before.get_or_insert(kills));
        self.note(now, reading);
        if let Some((_, least)) = &mut self.alarmed {
            *least = reading.used.min(*least);
        }
        let alarm = self.alarm(now, &reading);
        self.is_near = alarm != Alarm::None;
        let alarm = match alarm {
            Alarm::None => Alarm::None,
            _ if self.has_alarmed(now, &reading) => Alarm::None,
            alarm => {
                self.alarmed = Some((now, reading.used));
                alarm
            }
        };
        let pressure = Pressure {
            time: Nanos(now),
            limit: reading.limit,
            alarm,
            most: reading.most,
            used: reading.used,
            kills,
        };
        let is_new = alarm != Alarm::None || self.is_noticeable(&pressure);
        is_new.then(|| {
            self.recorded = Some(pressure);
            Seen {
                pressure,
                has_room: reading.room() >= ROOM_FOR_SNAPSHOT.max(reading.most / 32),
            }
        })
    }

    /// Keeps a reading, and the last seconds' readings of the same limit.
    fn note(&mut self, now: u64, reading: Reading) {
        let is_other = |one: &Reading| one.limit != reading.limit || one.most != reading.most;
        if self.past.back().is_some_and(|(_, last)| is_other(last)) {
            self.past.clear();
        }
        while self
            .past
            .front()
            .is_some_and(|&(time, _)| now > time + OF_GROWTH)
        {
            self.past.pop_front();
        }
        self.past.push_back((now, reading));
    }

    /// Whether an alarm was raised for this: a short time ago, or memory has not grown since. A process may stay near its limit
    /// for days.
    fn has_alarmed(&self, now: u64, reading: &Reading) -> bool {
        self.alarmed.is_some_and(|(time, least)| {
            now < time + PAUSE || reading.used.saturating_sub(least) < reading.most / GROWN
        })
    }

    fn alarm(&self, now: u64, reading: &Reading) -> Alarm {
        if part(reading) >= NEAR {
            return Alarm::Near;
        }
        if let Some(&(time, first)) = self.past.front()
            && now >= time + KNOWN_AFTER
            && part(reading) >= SOON_FROM
        {
            let seconds = (now - time) as f64 / SECOND as f64;
            let grown = reading.used as f64 - first.used as f64;
            if grown > 0.0 && reading.room() as f64 <= grown / seconds * SOON {
                return Alarm::Growth;
            }
        }
        if part(reading) >= SOON_FROM && self.limits.stalled() >= STALLED {
            return Alarm::Stalls;
        }
        Alarm::None
    }

    fn is_noticeable(&self, now: &Pressure) -> bool {
        let first = self.past.front().map_or(0, |(_, first)| first.used);
        let known = self.recorded.map_or(first, |before| before.used);
        if now.used.saturating_sub(known) >= now.most / LEAP * 2 {
            return true;
        }
        let Some(before) = &self.recorded else {
            return now.part() >= MUCH;
        };
        let differs = before.used.abs_diff(now.used) >= now.most / NOTICEABLE;
        let is_much = now.part() >= MUCH || before.part() >= MUCH;
        now.kills != before.kills || (is_much && (differs || before.most != now.most))
    }
}

fn part(reading: &Reading) -> f64 {
    reading.used as f64 / reading.most.max(1) as f64
}

#[cfg(test)]
mod tests;
