//! What happens at a sample and at a collection.
//!
//! ```text
//! nursery      where `nursery_top` stands, so that the next sample point is not missed
//! engine       one session inside the collector, for whoever holds the interpreter's lock
//! sampling     how samples are taken, and finished after a collection
//! hooks        the functions that take the place of the collector's
//! large        large objects, which come from `malloc`
//! pending      sampled objects until the next minor collection
//! majors       the steps of major collections
//! totals       where the collector keeps its memory totals
//! statistics   memory totals, now and then
//! backlog      events that wait for room in the ring
//! ```

mod backlog;
mod engine;
mod hooks;
mod large;
mod majors;
mod nursery;
mod pending;
mod sampling;
mod statistics;
mod totals;

pub use engine::Engine;
pub use hooks::HookedFunction;
pub use large::{calloc_hook, find_sites, free_hook, malloc_hook};
pub use majors::Majors;
pub use nursery::Nursery;
pub use sampling::Remains;
pub use statistics::Statistics;
pub use totals::{ReportedTotals, observe as observe_totals};
