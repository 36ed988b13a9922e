//! The heap's other services besides samples: memory totals, what the writer thread looks at, huge pages, and what it does at
//! intervals.

pub mod accounts;
pub mod huge_pages;
pub mod totals;
pub mod upkeep;
