//! The labels of samples, by key: what each label set says, and a way to distinguish stacks by it.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::event::LabelSetId;
use crate::model::Profile;

/// What stands in place of a value for samples without a label of a key.
pub const NO_LABEL: &str = "[no label]";

/// The values of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValues<'a> {
    /// Each value once.
    pub values: Vec<&'a str>,
    /// By label set: the index of its value; `None` if it has none.
    of_sets: Vec<Option<u32>>,
}

impl LabelValues<'_> {
    /// The index of a set's value; `None` if it has none.
    #[must_use]
    pub fn of(&self, set: LabelSetId) -> Option<usize> {
        let value = self.of_sets.get(set.index()).copied().flatten();
        value.map(|value| value as usize)
    }
}

impl Profile {
    /// The values that label sets have for a key.
    #[must_use]
    pub fn label_values(&self, key: &str) -> LabelValues<'_> {
        let mut found = LabelValues::default();
        let mut numbers: HashMap<&str, u32, RandomState> = HashMap::default();
        // A set comes after the one that it extends.
        for set in &self.label_sets {
            let value = if set.key == key {
                Some(*numbers.entry(&set.value).or_insert_with(|| {
                    found.values.push(&set.value);
                    found.values.len() as u32 - 1
                }))
            } else {
                found.of_sets.get(set.parent.index()).copied().flatten()
            };
            found.of_sets.push(value);
        }
        found
    }

    /// The keys of labels, each once, in the order in which they were defined.
    #[must_use]
    pub fn label_keys(&self) -> Vec<&str> {
        let mut seen: HashSet<&str, RandomState> = HashSet::default();
        // The first set is the empty one.
        let keys = self.label_sets.iter().skip(1).map(|set| set.key.as_str());
        keys.filter(|key| seen.insert(key)).collect()
    }

    /// Adds a frame with the value of a label at the outer end of every stack, so that all reports of stacks show it. `without` is the
    /// name of the frame of samples without such a label.
    pub fn root_by_label(&mut self, key: &str, without: &str) {
        let values = self.label_values(key);
        let names: Vec<String> = values
            .values
            .iter()
            .map(|value| format!("{key}={value}"))
            .chain([without.to_owned()])
            .collect();
        let of_sets = values.of_sets;
        let others = names.len() - 1;
        self.root_by(names, |_, set| {
            let value = of_sets.get(set.index()).copied().flatten();
            value.map_or(others, |value| value as usize)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;
    use crate::model::LabelSet;

    #[test]
    fn a_set_has_the_newest_value_of_each_key() {
        let mut profile = Profile::empty(Meta::default());
        let mut define = |parent: u32, key: &str, value: &str| {
            profile.label_sets.push(LabelSet {
                parent: LabelSetId(parent),
                key: key.to_owned(),
                value: value.to_owned(),
            });
        };
        define(0, "endpoint", "/a");
        define(1, "tenant", "x");
        define(2, "endpoint", "/b");
        define(0, "tenant", "x");
        assert_eq!(profile.label_keys(), ["endpoint", "tenant"]);
        let of = |key: &str| {
            let values = profile.label_values(key);
            let sets = (0..5).map(LabelSetId);
            sets.map(|set| values.of(set).map(|value| values.values[value]))
                .collect::<Vec<_>>()
        };
        let (a, b, x) = (Some("/a"), Some("/b"), Some("x"));
        assert_eq!(of("endpoint"), [None, a, a, b, None]);
        assert_eq!(of("tenant"), [None, None, x, x, x]);
        assert_eq!(of("none"), [None; 5]);
    }
}
