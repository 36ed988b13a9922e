//! The heap's other services besides samples: memory totals, huge pages, and what it does at intervals.

pub mod huge_pages;
pub mod totals;
pub mod upkeep;
