//! What the agent asks of the heap beside samples: memory totals, and huge pages as the program grows.

pub mod huge_pages;
pub mod totals;
