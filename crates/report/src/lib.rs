//! Reports on a profile: summary, call tree, flame graph page; for allocations and for time.

pub mod aggregate;
pub mod diff;
pub mod estimate;
pub mod explain;
pub mod flamegraph;
mod inclusive;
pub mod leaks;
mod peak;
pub mod statistics;
pub mod summary;
pub mod text;
mod time;
pub mod tree;

pub use aggregate::{Aggregate, Split};
pub use diff::Diff;
pub use estimate::{Estimate, Estimator, Totals};
pub use explain::Explanation;
pub use leaks::Leaks;
pub use summary::{By, Summary};
pub use tree::Tree;
