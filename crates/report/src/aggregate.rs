//! Samples that have stack, type and fate in common, taken together.
//!
//! A profile has millions of samples but only thousands of distinct stacks. Whatever asks for
//! totals starts from these groups.

use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{NodeId, TypeId};
use nthbyte_profile::model::Fate;

use crate::estimate::{Estimator, Totals};

/// What the samples of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Who allocated.
    pub stack: NodeId,
    /// What.
    pub type_id: TypeId,
    /// What became of it.
    pub fate: Fate,
}

/// All samples of a profile, by group.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The groups in order, each once, with the sums over its samples.
    pub groups: Vec<(Group, Totals)>,
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
            .map(|&shape| Totals::of_sample(&profile.meta, shape))
            .collect();
        let mut numbers: HashMap<Group, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut groups: Vec<(Group, Totals)> = Vec::new();
        let mut all = Totals::default();
        for id in samples.ids() {
            let group = Group {
                stack: samples.stack(id),
                type_id: samples.type_id(id),
                fate: samples.fate(id),
            };
            let number = *numbers.entry(group).or_insert_with(|| {
                groups.push((group, Totals::default()));
                groups.len() as u32 - 1
            });
            let totals = &shapes[samples.shape_id(id).0 as usize];
            groups[number as usize].1.add(totals);
            all.add(totals);
        }
        groups.sort_unstable_by_key(|&(group, _)| group);
        let estimator = Estimator::new(profile, &all);
        Self {
            groups,
            all,
            estimator,
        }
    }
}
