//! Totals of all samples of a profile, by stack, by type and by process.
//!
//! A profile has millions of samples but only thousands of sites, and fewer stacks and types. Every report that
//! needs totals uses these tables. They take one pass over the samples, which adds each to its site, and no search.

use nthbyte_profile::Profile;
use nthbyte_profile::event::SampleId;
use nthbyte_profile::model::{Lifetime, Site};

use crate::estimate::{Estimator, Moments, Totals};
use crate::inclusive::{ByStack, Sparse, Sum};
use crate::selection::{Alive, Moment};

/// Samples, with the bytes of each lifetime and of what was alive at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByLifetime {
    /// All of them.
    pub all: Totals,
    /// The bytes of the samples of each [`Lifetime`].
    pub lifetimes: [Moments; Lifetime::ALL.len()],
    /// The bytes of those that were alive at the moment.
    pub alive: Moments,
}

impl ByLifetime {
    fn count(&mut self, sample: &Totals, lifetime: Lifetime, alive: Option<&Totals>) {
        self.all.add(sample);
        self.lifetimes[lifetime as usize].add(&sample.bytes);
        if let Some(alive) = alive {
            self.alive.add(&alive.bytes);
        }
    }

    /// The bytes of those with a lifetime.
    #[must_use]
    pub fn of(&self, lifetime: Lifetime) -> &Moments {
        &self.lifetimes[lifetime as usize]
    }

    /// The bytes of those that did not die young.
    #[must_use]
    pub fn survivors(&self) -> Moments {
        let mut sum = *self.of(Lifetime::Freed);
        sum.add(self.of(Lifetime::Survived));
        sum.add(self.of(Lifetime::StillLive));
        sum
    }
}

impl Sum for ByLifetime {
    fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        for (sum, other) in self.lifetimes.iter_mut().zip(&other.lifetimes) {
            sum.add(other);
        }
        self.alive.add(&other.alive);
    }
}

/// The totals of all allocation samples of a profile.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// By stack: the samples with exactly this stack.
    pub stacks: ByStack<ByLifetime>,
    /// By type, in the order of [`TypeId`](nthbyte_profile::event::TypeId)s.
    pub types: Sparse<ByLifetime>,
    /// By process. Indexes are [`ProcessId`](nthbyte_profile::model::ProcessId)s.
    pub processes: Vec<ByLifetime>,
    /// By label set, in the order of [`LabelSetId`](nthbyte_profile::event::LabelSetId)s.
    pub labels: Sparse<ByLifetime>,
    /// The sums over all samples.
    pub all: ByLifetime,
    /// Turns sums into estimates.
    pub estimator: Estimator,
    /// The same for the sums of what was alive at the moment: [`ByLifetime::alive`].
    pub of_alive: Estimator,
}

impl Aggregate {
    /// Passes over all samples once. `moment`: what was alive then is summed.
    #[must_use]
    pub fn of(profile: &Profile, moment: Moment) -> Self {
        Self::with(
            profile,
            moment,
            profile.types.len(),
            profile.label_sets.len(),
        )
    }

    /// The same without sums by type and by label set, which take as much memory as those by stack where each sample has another.
    pub(crate) fn of_stacks(profile: &Profile, moment: Moment) -> Self {
        Self::with(profile, moment, 0, 0)
    }

    /// Sums of so many types and label sets: of all or none.
    fn with(profile: &Profile, moment: Moment, types: usize, labels: usize) -> Self {
        let alive = Alive::at(profile, moment);
        let mut sums = Self {
            stacks: ByStack::new(profile.stacks.len()),
            types: Sparse::new(types),
            processes: vec![ByLifetime::default(); profile.processes.len().max(1)],
            labels: Sparse::new(labels),
            all: ByLifetime::default(),
            estimator: Estimator::new(profile, &Totals::default()),
            of_alive: Estimator::new(profile, &Totals::default()),
        };
        each_site(profile, &alive, |site, sum| {
            sums.stacks.of_mut(site.stack.index()).add(sum);
            sums.processes[profile.process_of(site.thread).index()].add(sum);
            if types > 0 {
                sums.types.of_mut(site.type_id.index()).add(sum);
            }
            if labels > 0 {
                sums.labels.of_mut(site.labels.index()).add(sum);
            }
            sums.all.add(sum);
        });
        sums.estimator = Estimator::new(profile, &sums.all.all);
        sums.of_alive = alive.estimator(&sums.estimator);
        sums
    }
}

/// With fewer samples for each site, sums by site are not worth their memory.
const WORTH_SUMS: usize = 4;

/// Passes on the sums over the samples of sites, so that all sites together have each sample once.
fn each_site(profile: &Profile, alive: &Alive<'_>, mut pass: impl FnMut(&Site, &ByLifetime)) {
    let samples = &profile.samples;
    let shapes = Totals::of_shapes(profile);
    let count = |sum: &mut ByLifetime, id: SampleId| {
        let totals = &shapes[samples.shape_id(id).0 as usize];
        sum.count(totals, samples.lifetime(id), alive.totals(id));
    };
    if samples.sites().len().saturating_mul(WORTH_SUMS) > samples.len() {
        for id in samples.ids() {
            let mut sum = ByLifetime::default();
            count(&mut sum, id);
            pass(&samples.site(samples.site_id(id)), &sum);
        }
        return;
    }
    let mut sums = vec![ByLifetime::default(); samples.sites().len()];
    for id in samples.ids() {
        count(&mut sums[samples.site_id(id).index()], id);
    }
    let seen = samples.sites().iter().zip(&sums);
    for (site, sum) in seen.filter(|(_, sum)| sum.all.samples > 0) {
        pass(site, sum);
    }
}
