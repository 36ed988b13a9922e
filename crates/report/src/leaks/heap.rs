//! PyPy: whether the heap as a whole grows.
//!
//! On PyPy, nthbyte sees whether an object survives its first minor collection, but not when it is
//! freed after that. Two facts are known: the memory in use just after each major collection, when
//! no dead object is left; and the sites whose objects become old. If that memory grows each time,
//! the leak is among these sites.

use nthbyte_profile::Profile;
use nthbyte_profile::event::CollectionKind;
use serde::Serialize;

/// The smallest number of major collections that allows a conclusion.
const FEWEST: usize = 5;

/// Growth from one major collection to the next that counts, as a part.
const GROWN: f64 = 0.02;

/// The heap as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct WholeHeap {
    /// Whether it grows; `null` if there is not enough data.
    pub grows: Option<bool>,
    /// Moments, in nanoseconds since the session's start, and the bytes in use then, after
    /// each major collection.
    pub after_collections: Vec<(u64, u64)>,
    /// Growth over these, in bytes a minute.
    pub bytes_per_minute: f64,
    /// The probability that so many of the steps go up by chance.
    pub p: f64,
}

impl WholeHeap {
    pub(crate) fn of(profile: &Profile) -> Self {
        let majors = profile.collections.iter();
        let majors = majors.filter(|collection| collection.kind == CollectionKind::Major);
        let after: Vec<(u64, u64)> = majors
            .filter_map(|collection| {
                Some((
                    collection.start.0 + collection.duration.0,
                    collection.bytes_after?,
                ))
            })
            .filter(|&(at, _)| at * 10 >= profile.end.0)
            .collect();
        let p = mann_kendall(&after.iter().map(|&(_, bytes)| bytes).collect::<Vec<_>>());
        let (first, last) = match (after.first(), after.last()) {
            (Some(&first), Some(&last)) if after.len() >= FEWEST => (first, last),
            _ => {
                return Self {
                    grows: None,
                    after_collections: after,
                    bytes_per_minute: 0.0,
                    p: 1.0,
                };
            }
        };
        let middle = after[after.len() / 2].1 as f64;
        let enough =
            last.1 as f64 >= middle * (1.0 + GROWN) && middle >= first.1 as f64 * (1.0 + GROWN);
        // It grew until the last collection, and that was recent.
        let recent = last.0 * 2 >= profile.end.0;
        Self {
            grows: Some(p <= 0.01 && enough && recent),
            bytes_per_minute: (last.1 as f64 - first.1 as f64) / (last.0 - first.0).max(1) as f64
                * 60e9,
            after_collections: after,
            p,
        }
    }
}

/// The probability of so many pairs in ascending order, if all orders are equally likely (Mann,
/// Econometrica 13, 1945), exact: the distribution of the number of inversions.
fn mann_kendall(values: &[u64]) -> f64 {
    // The last values are sufficient evidence.
    let values = &values[values.len().saturating_sub(60)..];
    let number = values.len();
    if number < 2 {
        return 1.0;
    }
    // Ties count as descending: less evidence.
    let pairs = (0..number).flat_map(|one| (one + 1..number).map(move |other| (one, other)));
    let descending = pairs
        .filter(|&(one, other)| values[one] >= values[other])
        .count();
    // For all orders of this many values, the part with each number of inversions.
    let mut part = vec![1.0];
    for place in 1..number {
        let mut next = vec![0.0; part.len() + place];
        for (inversions, &share) in part.iter().enumerate() {
            for more in 0..=place {
                next[inversions + more] += share / (place + 1) as f64;
            }
        }
        part = next;
    }
    part[..=descending].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_orders_are_rare() {
        assert!((mann_kendall(&[1, 2, 3, 4, 5]) - 1.0 / 120.0).abs() < 1e-12);
        assert!((mann_kendall(&[5, 4, 3, 2, 1]) - 1.0).abs() < 1e-12);
        // One inversion: four orders of 120 beside the sorted one.
        assert!((mann_kendall(&[1, 3, 2, 4, 5]) - 5.0 / 120.0).abs() < 1e-12);
        assert!((mann_kendall(&[7; 5]) - 1.0).abs() < 1e-12);
    }
}
