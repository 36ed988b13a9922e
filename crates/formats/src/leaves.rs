//! What a sample's stack ends in when the object counts as its top: stack, type and lifetime.
//!
//! The Firefox Profiler colours a stack by its top frame, so the type that was allocated becomes
//! that frame, one for each lifetime. Distinct triples are few (as a rule, no more than stacks), so they
//! are numbered once and each sample keeps a 4-byte number.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{NodeId, TypeId};
use nthbyte_profile::model::Lifetime;

/// A distinct triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf {
    pub stack: NodeId,
    pub type_id: TypeId,
    pub lifetime: Lifetime,
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
                lifetime: samples.lifetime(id),
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
