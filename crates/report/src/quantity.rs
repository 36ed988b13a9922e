//! What samples are added up to: bytes, or time. A report that can be of either is written once, for a [`Quantity`].

use nthbyte_profile::Profile;

use crate::aggregate::Aggregate;
use crate::estimate::{Estimate, Estimator, Totals};
use crate::inclusive::{ByStack, Sum};
use crate::selection::Moment;
use crate::text;

/// A quantity of which each sample stands for some.
pub trait Quantity: Sized {
    /// The sum over some samples.
    type Sum: Sum;

    /// The quantity in this profile, and the sums over its samples, by stack.
    fn of(profile: &Profile) -> (Self, ByStack<Self::Sum>);

    /// What a sum is, to be compared with others. The sums of parts add up to the sum of the whole.
    fn size(sum: &Self::Sum) -> f64;

    /// The figure and its error, in columns of one width.
    fn figure(&self, sum: &Self::Sum) -> String;
}

/// Bytes allocated.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    estimator: Estimator,
    /// Whether every allocation was recorded.
    is_exact: bool,
}

impl Quantity for Bytes {
    type Sum = Totals;

    fn of(profile: &Profile) -> (Self, ByStack<Totals>) {
        let aggregate = Aggregate::of(profile, Moment::End);
        let mut stacks = ByStack::new(profile.stacks.len());
        for (stack, sum) in aggregate.stacks.iter() {
            *stacks.of_mut(stack as usize) = sum.all;
        }
        let bytes = Self {
            estimator: aggregate.estimator,
            is_exact: profile.is_exact(),
        };
        (bytes, stacks)
    }

    fn size(sum: &Totals) -> f64 {
        sum.bytes.estimate
    }

    fn figure(&self, sum: &Totals) -> String {
        let bytes: Estimate = self.estimator.bytes(sum);
        let shown = text::bytes(bytes.estimate);
        if self.is_exact {
            format!("{shown:>8}")
        } else if bytes.estimate == 0.0 {
            format!("{shown:>8}       ")
        } else if bytes.is_wide() {
            let shown = text::wide_range(bytes.low, bytes.high);
            format!("{shown:>15}")
        } else {
            let error = format!("±{}", bytes.relative_error());
            format!("{shown:>8} {error:<6}")
        }
    }
}
