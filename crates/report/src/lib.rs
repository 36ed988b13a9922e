//! Reports on a profile: summary, call tree, flame graph page; for allocations and for time.

pub mod aggregate;
mod columns;
pub mod diff;
pub mod estimate;
pub mod explain;
pub mod flamegraph;
pub mod fold;
mod inclusive;
mod interval;
pub mod leaks;
pub mod memory;
mod parallel;
mod periods;
mod quantity;
pub mod selection;
pub mod statistics;
pub mod suite;
pub mod summary;
pub mod text;
mod time;
pub mod tree;
mod youth;

pub use aggregate::{Aggregate, ByLifetime};
pub use diff::Diff;
pub use estimate::{Estimate, Estimator, Totals};
pub use explain::Explanation;
pub use inclusive::{ByStack, Sparse, Sum};
pub use leaks::Leaks;
pub use memory::Memory;
pub use quantity::{Bytes, Quantity};
pub use selection::{At, LabelQuery, Selected, Selection, SelectionError};
pub use suite::Suite;
pub use summary::{By, LabelKey, Sort, Summary};
pub use time::{Time, TimeTotals};
pub use tree::Tree;
