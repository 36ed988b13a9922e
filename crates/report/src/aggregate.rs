//! Totals of all samples of a profile, by stack, by type and by process.
//!
//! A profile has millions of samples but only thousands of stacks and types. Every report that
//! needs totals uses these tables. They take one pass and no search, since stacks and types are
//! indexes.

use nthbyte_profile::Profile;
use nthbyte_profile::event::ThreadId;
use nthbyte_profile::model::{Lifetime, ProcessId};

use crate::estimate::{Estimator, Moments, Totals};
use crate::inclusive::Sum;
use crate::selection::{Alive, Moment};

/// Samples, with the bytes of each lifetime and of what was alive at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByLifetime {
    /// All of them.
    pub all: Totals,
    /// The bytes of those of each [`Lifetime`].
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
    /// By stack: the samples with exactly this stack. Indexes are
    /// [`NodeId`](nthbyte_profile::event::NodeId)s.
    pub stacks: Vec<ByLifetime>,
    /// By type. Indexes are [`TypeId`](nthbyte_profile::event::TypeId)s.
    pub types: Vec<ByLifetime>,
    /// By process. Indexes are [`ProcessId`]s.
    pub processes: Vec<ByLifetime>,
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
        let samples = &profile.samples;
        let shapes = samples.shapes().iter();
        let shapes: Vec<Totals> = shapes
            .map(|&shape| Totals::of_sample(profile, shape))
            .collect();
        let threads = (0..profile.threads.len() as u32).map(ThreadId);
        let of_threads: Vec<ProcessId> = threads.map(|of| profile.process_of(of)).collect();
        let mut stacks = vec![ByLifetime::default(); profile.stacks.len()];
        let mut types = vec![ByLifetime::default(); profile.types.len()];
        let mut processes = vec![ByLifetime::default(); profile.processes.len().max(1)];
        let alive = Alive::at(profile, moment);
        for id in samples.ids() {
            let totals = &shapes[samples.shape_id(id).0 as usize];
            let process = of_threads.get(samples.thread(id).index());
            let process = process.copied().unwrap_or(ProcessId::FIRST);
            let (lifetime, of_alive) = (samples.lifetime(id), alive.totals(id));
            let count = |sum: &mut ByLifetime| sum.count(totals, lifetime, of_alive);
            count(&mut stacks[samples.stack(id).index()]);
            count(&mut types[samples.type_id(id).index()]);
            count(&mut processes[process.index()]);
        }
        let mut all = ByLifetime::default();
        types.iter().for_each(|totals| all.add(totals));
        let estimator = Estimator::new(profile, &all.all);
        let of_alive = alive.estimator(&estimator);
        Self {
            stacks,
            types,
            processes,
            all,
            estimator,
            of_alive,
        }
    }
}
