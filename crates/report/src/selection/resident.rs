//! When the resident set was largest.
//!
//! It often stays near its peak after objects are freed, because the heap keeps pages for later, and its last
//! kilobytes come and go. So the largest of several nearly equal readings may be one of a time at which little
//! was alive. All readings within a hundredth of the largest count as the peak, and the moment is that at which
//! most was alive: this is what the memory was needed for. Where the kernel only knows that the peak lay
//! between two readings, it is the time in between at which most was alive. If there is a choice, the first half of the
//! samples makes it ([`Moment::Found`]).

use std::ops::RangeInclusive;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Memory, Nanos};

use super::alive::{Moment, most_alive};
use super::lifetimes_are_known;

/// Readings that differ from the largest by less than it divided by this are as good.
const NEAR: u64 = 100;

/// A reading of the resident set.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// When the set had this size: at one time, or at an unknown one in between.
    pub(crate) when: RangeInclusive<Nanos>,
    /// Its size in bytes.
    pub(crate) rss: u64,
}

impl Reading {
    /// A reading at one time.
    pub(crate) fn at(time: Nanos, rss: u64) -> Self {
        Self::between(time, time, rss)
    }

    /// A reading of a size that the set had at an unknown time from `since` on. A block freed at its very `time` was
    /// alive when it was read: a process's last reading has the time of its end, to which its objects live.
    fn between(since: Nanos, time: Nanos, rss: u64) -> Self {
        let before = Nanos(time.0.saturating_sub(1));
        let when = since.min(before)..=time;
        Self { when, rss }
    }

    /// The readings of a profile, which are in the order of time. Where the kernel's peak is larger than at the reading before,
    /// it was reached at an unknown time between the two: a block of which the size was read may be noted as freed already.
    pub(crate) fn all(memory: &[Memory]) -> Vec<Self> {
        let mut last = Nanos(0);
        let mut peak: Option<u64> = None;
        let mut read = memory.iter().filter(|of| of.rss.is_some()).peekable();
        let mut readings = Vec::new();
        while let Some(Memory {
            time,
            rss,
            peak_rss,
            ..
        }) = read.next()
        {
            let is_passed = read
                .peek()
                .is_some_and(|next| next.time.0.saturating_sub(time.0) <= Memory::PASSED.0);
            let has_risen = peak.is_some_and(|peak| *peak_rss > Some(peak));
            let since = if is_passed || has_risen { last } else { *time };
            readings.extend(rss.map(|rss| Self::between(since, *time, rss)));
            last = *time;
            peak = peak.max(*peak_rss);
        }
        readings
    }
}

/// When the resident set was largest. The readings are in the order of time. Where it is not known what was alive, it is the
/// first of the nearly equal ones.
pub(crate) fn peak_of_rss(profile: &Profile, readings: &[Reading]) -> Option<Moment> {
    let largest = readings.iter().map(|reading| reading.rss).max()?;
    let is_near = |reading: &&Reading| largest - reading.rss <= largest / NEAR;
    let near = || readings.iter().filter(is_near).map(|of| of.when.clone());
    let (start, end) = near().next()?.into_inner();
    if !lifetimes_are_known(profile) {
        return Some(Moment::Time(end));
    }
    // Without a choice, all samples say what was alive.
    if end.0 - start.0 <= 1 && near().count() == 1 {
        return Some(Moment::Time(start));
    }
    let found = most_alive(profile, near()).map(Moment::Found);
    found.or(Some(Moment::Time(end)))
}
