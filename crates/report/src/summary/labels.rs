//! The rows of labels.

use nthbyte_profile::Profile;
use nthbyte_profile::event::LabelSetId;

use super::rows::{Label, Table};
use super::{LabelKey, NO_LABEL};
use crate::inclusive::{KeyTotals, Sparse, Sum};

/// The rows of a label's values, and the row of samples without that label, which is the last one.
pub(super) struct OfLabels<'a, T> {
    names: Vec<&'a str>,
    totals: Vec<T>,
}

impl<'a, T: Sum> OfLabels<'a, T> {
    /// From the sums by label set.
    pub(super) fn of(profile: &'a Profile, sums: &Sparse<T>, key: LabelKey) -> Self {
        let values = profile.label_values(key.as_str());
        let mut totals = vec![T::default(); values.values.len() + 1];
        for (set, sum) in sums.iter() {
            let value = values.of(LabelSetId(set));
            totals[value.unwrap_or(values.values.len())].add(sum);
        }
        let names = values.values.iter().copied().chain([NO_LABEL]);
        Self {
            names: names.collect(),
            totals,
        }
    }
}

impl<T: Sum> Table<T> for OfLabels<'_, T> {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn label(&self, row: usize) -> Label<'_> {
        (self.names[row].into(), "", 0)
    }

    fn totals(&self, row: usize) -> Option<KeyTotals<T>> {
        let own = self.totals[row];
        Some(KeyTotals { own, total: own })
    }
}
