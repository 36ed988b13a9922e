//! The rows of labels.

use nthbyte_profile::Profile;
use nthbyte_profile::event::LabelSetId;

use super::rows::Labelled;
use super::{LabelKey, NO_LABEL};
use crate::inclusive::{KeyTotals, Sparse, Sum};

/// Rows of a label's values, from the sums by label set.
pub(super) fn labelled<'a, T: Sum + 'static>(
    profile: &'a Profile,
    sums: &Sparse<T>,
    key: LabelKey,
) -> Labelled<'a, T> {
    let values = profile.label_values(key.as_str());
    let mut totals = vec![T::default(); values.values.len() + 1];
    for (set, sum) in sums.iter() {
        let value = values.of(LabelSetId(set));
        totals[value.unwrap_or(values.values.len())].add(sum);
    }
    let names = values.values.iter().copied().chain([NO_LABEL]);
    let names: Vec<&str> = names.collect();
    let rows = names.into_iter().zip(totals).enumerate();
    Box::new(
        rows.map(|(number, (name, own))| {
            (number, (name.into(), "", 0), KeyTotals { own, total: own })
        }),
    )
}
