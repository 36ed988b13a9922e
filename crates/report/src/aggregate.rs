//! Totals of all samples of a profile, by stack and by type.
//!
//! A profile has millions of samples but only thousands of stacks and types. Every report that
//! needs totals uses these tables. They take one pass and no search, since stacks and types are
//! indexes.

use nthbyte_profile::Profile;
use nthbyte_profile::model::Fate;

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

    pub(crate) fn of_fate(&mut self, fate: Fate) -> &mut Totals {
        if fate == Fate::DiedYoung {
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
    /// By type and fate. Indexes are [`TypeId`](nthbyte_profile::event::TypeId)s, then
    /// [`Fate`]s.
    pub types: Vec<[Totals; Fate::ALL.len()]>,
    /// By fate.
    pub fates: [Totals; Fate::ALL.len()],
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
        let mut types = vec![[Totals::default(); Fate::ALL.len()]; profile.types.len()];
        for id in samples.ids() {
            let totals = &shapes[samples.shape_id(id).0 as usize];
            let fate = samples.fate(id);
            stacks[samples.stack(id).index()].of_fate(fate).add(totals);
            types[samples.type_id(id).index()][fate as usize].add(totals);
        }
        let mut fates = [Totals::default(); Fate::ALL.len()];
        for of_type in &types {
            for (sum, totals) in fates.iter_mut().zip(of_type) {
                sum.add(totals);
            }
        }
        let mut all = Totals::default();
        fates.iter().for_each(|totals| all.add(totals));
        let estimator = Estimator::new(profile, &all);
        Self {
            stacks,
            types,
            fates,
            all,
            estimator,
        }
    }
}
