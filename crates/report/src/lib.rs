//! Questions asked of a profile: summary, tree, statistics.

pub mod aggregate;
pub mod estimate;
pub mod flamegraph;

pub use aggregate::{Aggregate, Group};
pub use estimate::{Estimate, Estimator, Totals};
