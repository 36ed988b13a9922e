//! How small a leak may have gone unnoticed.
//!
//! A place that is not called a leak may be one all the same: with too few samples, hidden among objects that come and go,
//! or never sampled at all. What its growth was at most, the interval of its growth says; of a place without a sample, the
//! interval of nothing. The largest of these upper limits is the bound: a leak beyond it, at a place that was not called
//! one, would have an interval that does not hold.

use super::analysis::{Analysis, Judged, alive_at};
use super::clock::Clock;
use super::figures::difference;
use super::findings::{Finding, Named};
use super::growth::START_UP;
use super::sites::Level;
use super::verdict::{FEW_AT_ONCE, SMALLEST, Verdict};
use crate::estimate::Totals;

/// The places that are looked at, those that seem to grow most first.
const MOST: usize = 2000;

impl Analysis<'_> {
    /// The bytes by which a place that is not among the findings may have grown over the window.
    pub(crate) fn unnoticed(&self, judged: &[Judged], findings: &[Finding]) -> f64 {
        if self.profile.is_exact() {
            return SMALLEST;
        }
        let unsampled = self.estimator.bytes(&Totals::default()).high;
        let mut places: Vec<Growth> = Vec::new();
        let named = Named::of(findings);
        let keep_most = |places: &mut Vec<Growth>| {
            places.sort_by(|one, other| other.seems().total_cmp(&one.seems()));
            places.truncate(MOST);
        };
        for (number, &(verdict, _)) in judged.iter().enumerate() {
            places.extend(self.may_have_grown(number, verdict, &named));
            if places.len() >= 2 * MOST {
                keep_most(&mut places);
            }
        }
        keep_most(&mut places);
        let limits = places.iter().map(|place| {
            let [gained, lost] =
                [&place.gained, &place.lost].map(|side| self.estimator.bytes(side));
            difference(&gained, &lost).high / place.part
        });
        limits.fold(unsampled.max(SMALLEST), f64::max)
    }

    /// What a candidate has gained and lost. `None` if it is in a finding, or is known to have stopped.
    fn may_have_grown(&self, number: usize, verdict: Verdict, named: &Named<'_>) -> Option<Growth> {
        let candidate = &self.candidates[number];
        let site = &self.sites.sites[candidate.site];
        if !matches!(site.level, Level::Function | Level::Line) {
            return None;
        }
        // The first sample of a place may come long after its first allocation.
        let end = f64::from(candidate.end.moment[Clock::Work as usize]);
        let start = START_UP * end;
        // Of what has stopped, only growth that came later may go on.
        let from = match verdict {
            Verdict::Imported => return None,
            Verdict::Burst if candidate.held > FEW_AT_ONCE * self.longest_period => {
                return None;
            }
            Verdict::LevelledOff | Verdict::Shrank => f64::midpoint(start, end),
            _ => start,
        };
        let (mut gained, mut lost) = (Totals::default(), Totals::default());
        let mut place = None;
        for life in self.lives(self.sites.members(site)) {
            let [birth, death] =
                [life.birth, life.death].map(|at| f64::from(at[Clock::Work as usize]));
            let lives_on = alive_at(life, candidate.end);
            let side = match (lives_on, birth > from) {
                (true, true) => &mut gained,
                (false, false) if death > from => &mut lost,
                _ => continue,
            };
            side.add(self.totals(life.sample));
            place.get_or_insert(life);
        }
        let frame = self.sites.frames.own[self.stack(place?).index()].frame;
        let place = self.place(frame);
        if place.is_some_and(|place| named.has(&place)) {
            return None;
        }
        Some(Growth {
            gained,
            lost,
            part: (end - from) / (end - start),
        })
    }
}

/// What a place has gained and lost.
struct Growth {
    gained: Totals,
    lost: Totals,
    /// The part of the window in which it was looked at.
    part: f64,
}

impl Growth {
    fn seems(&self) -> f64 {
        (self.gained.bytes.estimate - self.lost.bytes.estimate) / self.part
    }
}
