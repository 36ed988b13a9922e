//! Totals of all samples of a profile, by stack and by type.
//!
//! A profile has millions of samples but only thousands of stacks and types. Every report that
//! needs totals uses these tables. They take one pass and no search, since stacks and types are
//! indexes.

use nthbyte_profile::Profile;
use nthbyte_profile::model::Lifetime;

use crate::estimate::{Estimator, Totals};
use crate::inclusive::Sum;

/// Samples, divided into those that died young and all others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Split {
    /// Those that died young.
    pub died_young: Totals,
    /// All others.
    pub others: Totals,
}

impl Split {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Totals {
        let mut all = self.died_young;
        all.add(&self.others);
        all
    }

    /// Adds other samples.
    pub fn add(&mut self, other: &Self) {
        self.died_young.add(&other.died_young);
        self.others.add(&other.others);
    }

    pub(crate) fn of_lifetime(&mut self, lifetime: Lifetime) -> &mut Totals {
        if lifetime == Lifetime::DiedYoung {
            &mut self.died_young
        } else {
            &mut self.others
        }
    }
}

impl Sum for Split {
    fn add(&mut self, other: &Self) {
        Self::add(self, other);
    }
}

/// The totals of all allocation samples of a profile.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// By stack: the samples with exactly this stack. Indexes are
    /// [`NodeId`](nthbyte_profile::event::NodeId)s.
    pub stacks: Vec<Split>,
    /// By type and lifetime. Indexes are [`TypeId`](nthbyte_profile::event::TypeId)s, then
    /// [`Lifetime`]s.
    pub types: Vec<[Totals; Lifetime::ALL.len()]>,
    /// By lifetime.
    pub lifetimes: [Totals; Lifetime::ALL.len()],
    /// The sums over all samples.
    pub all: Totals,
    /// Turns sums into estimates.
    pub estimator: Estimator,
}

impl Aggregate {
    /// Passes over all samples once.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let shapes = samples.shapes().iter();
        let shapes: Vec<Totals> = shapes
            .map(|&shape| Totals::of_sample(profile, shape))
            .collect();
        let mut stacks = vec![Split::default(); profile.stacks.len()];
        let mut types = vec![[Totals::default(); Lifetime::ALL.len()]; profile.types.len()];
        for id in samples.ids() {
            let totals = &shapes[samples.shape_id(id).0 as usize];
            let lifetime = samples.lifetime(id);
            stacks[samples.stack(id).index()]
                .of_lifetime(lifetime)
                .add(totals);
            types[samples.type_id(id).index()][lifetime as usize].add(totals);
        }
        let mut lifetimes = [Totals::default(); Lifetime::ALL.len()];
        for of_type in &types {
            for (sum, totals) in lifetimes.iter_mut().zip(of_type) {
                sum.add(totals);
            }
        }
        let mut all = Totals::default();
        lifetimes.iter().for_each(|totals| all.add(totals));
        let estimator = Estimator::new(profile, &all);
        Self {
            stacks,
            types,
            lifetimes,
            all,
            estimator,
        }
    }
}
