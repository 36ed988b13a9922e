//! What happens at a sample and at a collection.
//!
//! ```text
//! engine       the part of a session inside the collector; the interpreter's lock protects it
//! sampling     takes samples, and finishes them after a collection
//! followed     where the objects of samples are now, for snapshots
//! hooks        the functions that take the place of the collector's
//! large        large objects, which come from `malloc`
//! totals       finds the collector's memory totals
//! statistics   records memory totals at intervals, and keeps the last ones for the writer thread
//! ```

mod engine;
mod followed;
pub mod hooks;
mod large;
mod sampling;
mod statistics;
mod totals;

pub use engine::Engine;
pub use large::{calloc_hook, find_sites, free_hook, malloc_hook};
pub use sampling::Remains;
pub use statistics::{Statistics, account};
pub use totals::{ReportedTotals, found as found_totals, observe as observe_totals};
