//! Leaves: the triples of stack, type and fate that samples have.
//!
//! The Firefox Profiler colours a stack by its top frame, so the object's type becomes
//! the top frame, one for each fate. There are few distinct triples (usually not more than stacks).
//! Each has a number, and a sample keeps only these 4 bytes.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{NodeId, TypeId};
use nthbyte_profile::model::Fate;

/// A distinct triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf {
    pub stack: NodeId,
    pub type_id: TypeId,
    pub fate: Fate,
}

/// All distinct triples of a profile.
pub(crate) struct Leaves {
    /// Ordered by their first samples; a key is an index into this.
    pub list: Vec<Leaf>,
    /// The key of every sample.
    pub of_sample: Vec<u32>,
}

impl Leaves {
    /// Numbers the triples of all samples.
    pub fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let mut numbers: HashMap<Leaf, u32, RandomState> = HashMap::default();
        let mut list: Vec<Leaf> = Vec::new();
        let mut of_sample = Vec::with_capacity(samples.len());
        // A stack usually allocates the same type again. So the last leaf of the stack is
        // compared first, which saves most of the hashing.
        let mut last = vec![u32::MAX; profile.stacks.len()];
        for id in samples.ids() {
            let leaf = Leaf {
                stack: samples.stack(id),
                type_id: samples.type_id(id),
                fate: samples.fate(id),
            };
            let last = &mut last[leaf.stack.index()];
            if list.get(*last as usize) != Some(&leaf) {
                *last = *numbers.entry(leaf).or_insert_with(|| {
                    list.push(leaf);
                    list.len() as u32 - 1
                });
            }
            of_sample.push(*last);
        }
        Self { list, of_sample }
    }
}
