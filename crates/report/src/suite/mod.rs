//! A run of tests: what each test and each shared fixture allocated, had at most, and left alive.
//!
//! An allocation belongs to whoever was at work at its time, in whatever thread it was made. What a test had at most is the
//! peak of its own allocations over what was alive when it began. What it left is alive when the recording ends; of a fixture
//! that was torn down later, that is not known.
//!
//! The peak of a row is found with one half of its samples, and is the estimate of the other half: see
//! [`nthbyte_profile::Halves`].

mod baseline;
mod exact;
mod marks;
mod render;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::model::{Lifetime, Shape};
use nthbyte_profile::{Halving, Profile};
use serde::Serialize;

use crate::estimate::{Estimate, Moments, Totals};
use crate::holders::{HeldBy, Keepers};
use crate::leaks::Frames;
use crate::periods;
use crate::selection::lifetimes_are_known;

pub use baseline::{Baseline, Changes, Evidence, Evidences, TestGrowth};
use exact::origin;
pub use exact::{Conditions, Exact, OfStack, Origin, TestFunction};
use marks::Turns;
pub use marks::{Marks, Measured, Owner, RecordedProfile, VERSION};

/// Of so many owners that leave most, the holders are looked for.
const MOST_HELD: usize = 50;

/// The figures of a test or a fixture.
#[derive(Clone, Debug, Serialize)]
pub struct TestRow {
    /// Whose figures they are.
    #[serde(flatten)]
    pub owner: Owner,
    /// How long it was at work, in nanoseconds.
    pub duration_nanos: u64,
    /// Samples of it.
    pub samples: u64,
    /// Bytes that it allocated.
    pub allocated: Estimate,
    /// The number of its allocations.
    pub allocations: Estimate,
    /// The most of its bytes that were alive at one time; missing if that is not known (PyPy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<Estimate>,
    /// Its bytes that were alive when the recording ended; missing if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Estimate>,
    /// The line of the program's own code that allocated most of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_by: Option<Origin>,
    /// Who holds most of it, where a snapshot says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<HeldBy>,
    /// Whether all of its allocations were recorded.
    pub exact: bool,
    /// What the figures are made of, for later comparisons.
    pub evidence: Evidences,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Suite {
    /// Tests and shared fixtures, in the order of the run.
    pub rows: Vec<TestRow>,
    /// What was allocated while no test and no shared fixture was at work: imports, the search for tests, the report.
    pub outside: Estimate,
    /// Bytes that the run allocated.
    pub allocated: Estimate,
    /// Profiles that were read.
    pub profiles: usize,
    /// Samples in all of them.
    pub samples: u64,
    /// What has grown since an earlier run, if there is one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// Sums of one owner.
#[derive(Clone, Debug, Default)]
struct Sums {
    duration: u64,
    all: Totals,
    left: Moments,
    left_is_known: Option<bool>,
    peak: Option<(Estimate, Evidence)>,
    /// The longest period under which it may have been missed.
    heaviest: f64,
    is_sampled: bool,
    /// Whether it was recorded by itself, and that is all that was seen of it.
    is_measured: bool,
    left_by: HashMap<Option<Origin>, f64, RandomState>,
    held_by: Option<HeldBy>,
}

/// Adds profiles up, one after the other.
pub struct Builder {
    owners: Vec<Owner>,
    sums: Vec<Sums>,
    outside: Sums,
    profiles: usize,
}

impl Builder {
    /// For a run with these owners.
    #[must_use]
    pub fn new(owners: Vec<Owner>) -> Self {
        Self {
            sums: vec![Sums::default(); owners.len()],
            owners,
            outside: Sums::default(),
            profiles: 0,
        }
    }

    /// Adds a recording and its profile.
    pub fn add(&mut self, recording: &RecordedProfile, profile: &Profile) {
        let turns = Turns::of(recording, self.owners.len());
        let samples = &profile.samples;
        let shapes = Totals::of_shapes(profile);
        let is_known = lifetimes_are_known(profile);
        let is_exact = profile.is_exact();
        let heaviest = periods::longest(profile);
        let frames = Frames::of(profile);
        self.profiles += 1;
        let mut peaks = Peaks::new(self.owners.len());
        for (owner, from, to) in turns.each(profile.end) {
            let sums = owner.map_or(&mut self.outside, |owner| &mut self.sums[owner]);
            sums.duration += to.0 - from.0;
            if from > profile.end {
                // The recording is interrupted, and the marks go on.
                continue;
            }
            sums.heaviest = sums.heaviest.max(heaviest);
            sums.is_sampled |= !is_exact;
            let is_finished = owner.is_none_or(|owner| {
                let unfinished = &recording.unfinished;
                !unfinished.iter().any(|&other| other as usize == owner)
            });
            let known = sums.left_is_known.get_or_insert(true);
            *known &= is_known && is_finished;
            if let Some(owner) = owner {
                peaks.end(owner, to);
            }
        }
        if recording.switches.is_empty() {
            self.outside.heaviest = self.outside.heaviest.max(heaviest);
            self.outside.is_sampled |= !is_exact;
        }
        let mut lives = Vec::new();
        let mut left: HashMap<usize, HashSet<SampleId, RandomState>, RandomState> =
            HashMap::default();
        for id in samples.ids() {
            let time = samples.time(id);
            let owner = turns.at(time);
            let totals = &shapes[samples.shape_id(id).0 as usize];
            let sums = owner.map_or(&mut self.outside, |owner| &mut self.sums[owner]);
            sums.all.add(totals);
            let Some(owner) = owner else { continue };
            if samples.lifetime(id) == Lifetime::StillLive {
                sums.left.add(&totals.bytes);
                left.entry(owner).or_default().insert(id);
                let origin = origin(profile, &frames, samples.stack(id));
                *sums.left_by.entry(origin).or_default() += totals.bytes.estimate;
            }
            if is_known {
                let birth = Step::birth(time, owner, id);
                lives.push(birth);
                lives.extend(samples.freed(id).map(|freed| Step::death(freed, birth)));
            }
        }
        if !is_known {
            return;
        }
        self.hold(profile, left);
        lives.sort_unstable();
        peaks.find(profile, &lives);
        for (owner, moments) in peaks.sums(profile, &lives) {
            let peak = match is_exact {
                true => Estimate::exact(moments.estimate),
                false => moments.interval(2.0 * heaviest),
            };
            let evidence = Evidence::of(&moments, 2.0 * heaviest, is_exact);
            self.sums[owner].keep_peak(peak, evidence);
        }
    }

    /// Says who holds the rest, for those that leave most.
    fn hold(
        &mut self,
        profile: &Profile,
        left: HashMap<usize, HashSet<SampleId, RandomState>, RandomState>,
    ) {
        let keepers = Keepers::of(profile);
        if keepers.is_empty() {
            return;
        }
        let mut owners: Vec<usize> = left.keys().copied().collect();
        owners.sort_by(|&one, &other| {
            let of = |owner: usize| self.sums[owner].left.estimate;
            of(other).total_cmp(&of(one)).then(one.cmp(&other))
        });
        for owner in owners.into_iter().take(MOST_HELD) {
            if let Some(held_by) = keepers.holder(&left[&owner]) {
                self.sums[owner].held_by = Some(held_by);
            }
        }
    }

    /// Adds a test that was recorded by itself, in no profile that is added.
    pub fn add_measured(&mut self, measured: &Measured) {
        let Some(sums) = self.sums.get_mut(measured.owner as usize) else {
            return;
        };
        let certain = |bytes: u64| Moments {
            estimate: bytes as f64,
            seen: bytes as f64,
            ..Moments::default()
        };
        sums.duration += measured.duration_nanos;
        sums.is_measured = true;
        sums.all.bytes.add(&certain(measured.allocated));
        sums.all.allocations.add(&certain(measured.allocations));
        if let Some(left) = measured.left {
            sums.left.add(&certain(left));
            *sums.left_by.entry(measured.left_by.clone()).or_default() += left as f64;
            sums.left_is_known.get_or_insert(true);
        }
        if let Some(peak) = measured.peak {
            let evidence = Evidence::of(&certain(peak), 1.0, true);
            sums.keep_peak(Estimate::exact(peak as f64), evidence);
        }
    }

    /// The sums of all profiles.
    #[must_use]
    pub fn finish(self) -> Suite {
        let mut all = self.outside.clone();
        let rows = self.owners.into_iter().zip(self.sums);
        let rows: Vec<TestRow> = rows
            .map(|(owner, sums)| {
                all.all.add(&sums.all);
                all.heaviest = all.heaviest.max(sums.heaviest);
                all.is_sampled |= sums.is_sampled;
                sums.row(owner)
            })
            .collect();
        Suite {
            rows,
            outside: self.outside.estimate(&self.outside.all.bytes),
            allocated: all.estimate(&all.all.bytes),
            profiles: self.profiles,
            samples: all.all.samples,
            changes: None,
        }
    }
}

impl Sums {
    /// Keeps a peak if it is the highest one.
    fn keep_peak(&mut self, peak: Estimate, evidence: Evidence) {
        if self
            .peak
            .is_none_or(|(most, _)| peak.estimate > most.estimate)
        {
            self.peak = Some((peak, evidence));
        }
    }

    fn estimate(&self, moments: &Moments) -> Estimate {
        match self.is_sampled {
            true => moments.interval(self.heaviest),
            false => Estimate::exact(moments.estimate),
        }
    }

    fn row(mut self, owner: Owner) -> TestRow {
        // Of what its fixtures allocated before, no sample was taken: next to the figures of the test, that is nothing.
        self.is_sampled &= !(self.is_measured && self.all.samples == 0);
        let left = self
            .left_is_known
            .unwrap_or(false)
            .then(|| self.estimate(&self.left));
        // The rest was alive at one time. Half of the samples may have missed that.
        let peak = match (self.peak.map(|(peak, _)| peak), left) {
            (Some(peak), Some(left)) if left.estimate > peak.estimate => Some(left),
            (peak, _) => peak,
        };
        let most = self
            .left_by
            .iter()
            .max_by(|one, other| one.1.total_cmp(other.1));
        let left_by = most.and_then(|(origin, _)| origin.clone());
        let allocations = match self.is_sampled {
            true => {
                let heaviest = crate::estimate::heaviest_allocations(
                    &self.all.bytes,
                    &self.all.allocations,
                    self.heaviest,
                );
                self.all.allocations.interval(heaviest)
            }
            false => Estimate::exact(self.all.allocations.estimate),
        };
        TestRow {
            owner,
            duration_nanos: self.duration,
            samples: self.all.samples,
            allocated: self.estimate(&self.all.bytes),
            allocations,
            peak,
            evidence: Evidences {
                allocated: Evidence::of(&self.all.bytes, self.heaviest, !self.is_sampled),
                peak: self.peak.map(|(_, evidence)| evidence),
            },
            left_by: left_by.filter(|_| left.is_some()),
            held_by: self.held_by.filter(|_| left.is_some()),
            left,
            exact: !self.is_sampled,
        }
    }
}

/// An allocation, or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    time: Nanos,
    /// What was allocated before is freed first; then objects are allocated; then those that lived no longer are freed.
    rank: u8,
    id: SampleId,
    is_free: bool,
    owner: u32,
}

impl Step {
    fn birth(time: Nanos, owner: usize, id: SampleId) -> Self {
        Self {
            time,
            rank: 1,
            id,
            is_free: false,
            owner: owner as u32,
        }
    }

    fn death(freed: Nanos, of: Self) -> Self {
        Self {
            time: freed,
            rank: if freed == of.time { 2 } else { 0 },
            is_free: true,
            ..of
        }
    }
}

/// When each owner had most.
struct Peaks {
    /// By owner: what the first half of its samples says is alive, its variance, the most of the one less the root of the other
    /// until now, and when that was.
    running: Vec<(f64, f64, f64, Option<Nanos>)>,
    /// By owner: the end of its work.
    ends: Vec<Nanos>,
}

impl Peaks {
    fn new(owners: usize) -> Self {
        Self {
            running: vec![(0.0, 0.0, 0.0, None); owners],
            ends: vec![Nanos(0); owners],
        }
    }

    fn end(&mut self, owner: usize, time: Nanos) {
        self.ends[owner] = self.ends[owner].max(time);
    }

    /// Finds them with the first half of the samples.
    fn find(&mut self, profile: &Profile, steps: &[Step]) {
        let halving = Halving::of(profile);
        for step in steps {
            let points = halving.halves(profile, step.id).first;
            if points == 0 {
                continue;
            }
            let bytes = half(profile, step.id, points);
            let (alive, variance, most, at) = &mut self.running[step.owner as usize];
            let sign = if step.is_free { -1.0 } else { 1.0 };
            *alive += sign * bytes.estimate;
            *variance += sign * bytes.variance;
            let certain = *alive - variance.max(0.0).sqrt();
            if at.is_none() || certain > *most {
                (*most, *at) = (certain, Some(step.time));
            }
        }
    }

    /// What the second half says was alive then, by owner. Where the first half has no sample, then is the end of its work.
    fn sums(&self, profile: &Profile, steps: &[Step]) -> Vec<(usize, Moments)> {
        let halving = Halving::of(profile);
        let mut sums: HashMap<usize, Moments, RandomState> = HashMap::default();
        for step in steps.iter().filter(|step| !step.is_free) {
            let owner = step.owner as usize;
            let at = self.running[owner].3.unwrap_or(self.ends[owner]);
            let sum = sums.entry(owner).or_default();
            let points = halving.halves(profile, step.id).second;
            let freed = profile.samples.freed(step.id);
            let is_freed_later = |freed| freed > at || (freed == at && step.time == at);
            if points > 0 && step.time <= at && freed.is_none_or(is_freed_later) {
                sum.add(&half(profile, step.id, points));
            }
        }
        sums.into_iter().collect()
    }
}

/// The bytes that a sample of a half stands for.
fn half(profile: &Profile, id: SampleId, points: u32) -> Moments {
    let shape = profile.samples.shape(profile.samples.shape_id(id));
    let sampling = profile.sampling(shape.sampling).of_half();
    Totals::of(&sampling, Shape { points, ..shape }).bytes
}
