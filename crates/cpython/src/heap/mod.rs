//! The heap's other services besides samples: memory totals, and the collapse into huge pages.

pub mod huge_pages;
pub mod totals;
