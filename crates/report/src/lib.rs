//! Questions asked of a profile: summary, tree, statistics.

pub mod flamegraph;
