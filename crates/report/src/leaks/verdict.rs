//! The meaning of a site's growth.
//!
//! A site leaks if its live bytes still grow at the end of the run as they did before: in time, and in
//! proportion to the work. The tests show whether the bytes grew at all; they are
//! [adjusted](crate::statistics::discovery) for their number. The limits below judge the form of the growth: a
//! cache also grows until it is full, and no test of the samples knows the program's intention.

use serde::Serialize;

use super::containers::Course;
use super::growth::{CELLS, Growth};

/// The rate at which [`adjust`](crate::statistics::discovery::adjust) controls false discoveries: of the sites that pass, at most
/// this part is expected to have no late growth. It is small: a leak soon gives evidence for its growth, and a false report
/// costs a person a day.
pub(crate) const RATE: f64 = 0.02;

/// Smaller sites get no verdict, in bytes.
pub const SMALLEST: f64 = 16.0 * 1024.0;

/// A site that holds fewer periods than this may leak although it seems to stay constant.
pub const FEW: f64 = 12.0;

/// A burst of fewer periods may be a leak: its samples are near each other by chance. A single one always is.
pub(crate) const FEW_AT_ONCE: f64 = 2.5;

/// A site that first allocates after this part of the run is too new to judge.
const TOO_NEW: f64 = 0.75;

/// The second half must have grown at this level in both clocks, besides the test over all sites: 4
/// samples against none.
const LEVEL: f64 = 0.07;

/// Mean position of the growth below which it is levelling off, in the clock that says so less and in
/// the one that says so more. A fill that approaches its limit exponentially, and reaches 86 % of it in
/// the window, has 0.34 in both. A leak has 0.5 in the clock that it follows; if each of its steps takes
/// longer than the one before (all listeners are called), it has 0.33 in time.
const LEVELLING: (f64, f64) = (0.38, 0.28);

/// The number of standard deviations at which levelling off is certain rather than possible; and the
/// mean position below which it then counts.
const CERTAIN: (f64, f64) = (2.5, 0.42);

/// Growth in the first half of the window, against growth in the second.
const EARLY: f64 = 0.25;

/// Kept bytes that were born in the first half of the window, compared with the whole growth.
const KEPT: f64 = 0.2;

/// The largest fall in the window, compared with the whole growth.
const FALL: f64 = 0.5;

/// The same for a container that grows, and how many objects such a site has at most.
const CONTAINER: (f64, f64) = (0.15, 4.0);

/// In so many cells of time after the first third, it must have grown, less those in which it shrank: a few tables that a notebook
/// keeps, with pauses between, are no leak yet, however many samples each has.
const EVENTS: u32 = 8;

/// The behaviour of a site's live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They grow, without a sign that the growth ends.
    Leak,
    /// They grew while the program ran, without a sign that the growth ends; but the program is not seen to repeat its work, so
    /// they may be a result that is being built.
    Grew,
    /// They may grow: there are too few samples, or the site is too new.
    NotEnoughData,
    /// They grow, but CPython keeps blocks of such objects for reuse: the blocks may be in a free
    /// list, or another line may use them now.
    Reused,
    /// They grow, but only the variables of running calls hold them, which will return.
    InProgress,
    /// Old objects of this site grow steadily; whether they are freed later is not recorded (PyPy).
    Suspect,
    /// They grow, but more and more slowly.
    Slowing,
    /// They grew, and have stopped.
    LevelledOff,
    /// They stay constant, while new objects replace the old ones: a full cache, a buffer, a pool.
    Replaced,
    /// They were allocated as the program started, and stay.
    StartUp,
    /// Modules keep them, and each module is imported once.
    Imported,
    /// They were allocated within a short time, and stay.
    Burst,
    /// They were more, and were freed.
    Shrank,
    /// They seem to stay constant, but there are too few samples to tell.
    TooFew,
}

/// A site's growth in both clocks, and other known facts.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) work: Growth,
    pub(crate) time: Growth,
    /// The growth of a container that makes up most of the held bytes, if that goes on until the end.
    pub(crate) container: Option<Course>,
    /// The positions, by work, at which the first and the last tenth of the held bytes were born.
    pub(crate) born: (f64, f64),
    /// Whether the objects belong to modules that were imported.
    pub(crate) import: bool,
}

impl Evidence {
    /// The probability of the growth by chance: the test that enters the adjustment.
    pub(crate) fn p(&self) -> f64 {
        let work = self.work.later_p().max(self.work.cells_p());
        work.max(self.time.cells_p())
    }

    /// The least that [`Self::p`] could be with as much evidence, all of it for growth.
    pub(crate) fn least_p(&self) -> f64 {
        self.work.least_p().max(self.time.least_p_of_cells())
    }

    /// `passes`: whether the test passes, adjusted for the number of tests.
    pub(crate) fn judge(&self, passes: bool) -> Verdict {
        let (work, time) = (&self.work, &self.time);
        if work.held() < 0.25 * work.peak() {
            return Verdict::Shrank;
        }
        if self.import {
            return Verdict::Imported;
        }
        if let Some(course) = &self.container
            && course.grown[1] >= SMALLEST
        {
            // Its size is known, so there is nothing to test.
            return if work.start > TOO_NEW {
                Verdict::NotEnoughData
            } else {
                Verdict::Leak
            };
        }
        let grows = work.net_late() > SMALLEST / 3.0
            && work.late_p() <= LEVEL
            && time.late_p() <= LEVEL
            && work.net() >= SMALLEST;
        if !grows {
            return self.without_growth();
        }
        if work.start > TOO_NEW {
            return Verdict::NotEnoughData;
        }
        if self.stops() {
            return Verdict::LevelledOff;
        }
        let positions = (work.mean_position(), time.mean_position());
        let (less, more) = (positions.0.max(positions.1), positions.0.min(positions.1));
        let certain = work.slowing() > CERTAIN.0 && time.slowing() > CERTAIN.0 && less < CERTAIN.1;
        if certain || less < LEVELLING.0 || more < LEVELLING.1 {
            return if certain {
                Verdict::Slowing
            } else {
                Verdict::NotEnoughData
            };
        }
        if !self.grew_early() {
            return Verdict::NotEnoughData;
        }
        let (grew, shrank) = time.cells;
        if passes && grew.saturating_sub(shrank) >= EVENTS {
            Verdict::Leak
        } else {
            Verdict::NotEnoughData
        }
    }

    /// Whether it grew and then stopped. On a machine that is busy with other programs time passes
    /// without growth, but not for long.
    fn stops(&self) -> bool {
        self.work.stops(&[CELLS / 2, CELLS * 3 / 4, CELLS * 7 / 8])
            || self.time.stops(&[CELLS / 2, CELLS * 5 / 8])
    }

    /// Whether it grew in the first half too, and kept that. Live bytes rise between two collections of
    /// cyclic garbage, or while a queue fills, and all that was born before the last fall is gone.
    fn grew_early(&self) -> bool {
        let growth = &self.work;
        let late = growth.net_late();
        let early = growth.net() - late;
        let fall = growth.drawdown() / growth.net().max(1.0);
        let kept = growth.kept_early >= KEPT * growth.net() && fall <= FALL;
        // A growing container is copied into a larger block: no old object is kept, but the live bytes
        // do not fall.
        let container = fall <= CONTAINER.0 && growth.objects <= CONTAINER.1;
        early >= EARLY * late && (kept || container)
    }

    fn without_growth(&self) -> Verdict {
        let growth = &self.work;
        let few = growth.late.0 + growth.late.1 < 6.0;
        // Some growth, but not enough for a decision.
        let may_grow =
            growth.net_late() > 0.0 && growth.late_p() <= 0.25 && self.time.late_p() <= 0.25;
        if few && may_grow && growth.net() >= SMALLEST && !self.stops() && self.grew_early() {
            return Verdict::NotEnoughData;
        }
        if growth.freed_late > 0.25 * growth.held() {
            return Verdict::Replaced;
        }
        self.stays()
    }

    fn stays(&self) -> Verdict {
        let (first, last) = self.born;
        if last <= 0.2 {
            Verdict::StartUp
        } else if last - first <= 0.1 {
            Verdict::Burst
        } else {
            Verdict::LevelledOff
        }
    }
}

/// The number of samples, all of them evidence for growth, that pass among this many tests if no
/// other test passes.
pub(crate) fn needed(tests: usize) -> f64 {
    (tests.max(1) as f64 / RATE).log2().ceil()
}
