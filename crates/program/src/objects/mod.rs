//! Objects of a program that was translated with RPython: samples from its collector's nursery, beside native memory's.
//!
//! ```text
//! begin, before main ─▶ Collector::find_in_program ─▶ hooks placed     no thread of the program exists yet
//! set-up of the collector ─ allocate_nursery ─▶ hooks ─▶ Engine: the nursery's limit is the next sample point
//! allocation ─ nursery_free passes nursery_top ─▶ hooks ─▶ Engine ─▶ pending: the native stack, until
//! minor collection ─▶ hooks ─▶ pending: type, fate ─▶ recording
//! ```
//!
//! RPython holds a lock of its own, or has one thread, wherever it allocates or collects. So there is one [`Engine`](engine), which
//! only hooks use. The end of the process may come in any thread, in the middle of a collection: it touches nothing that
//! the hooks use, but for the samples that are pending, which are used with a recording only.
//!
//! ```text
//! collecting  whether a thread is inside of the collector
//! find      whether the program has such a collector, and where
//! hooks     the functions that take the place of the collector's
//! engine    the nursery's limit, and whether a sampled object is recorded
//! pending   samples that wait for a collection
//! ```

mod collecting;
mod engine;
mod find;
mod hooks;
mod pending;

#[cfg(not(test))]
pub use engine::begin_in_child;
pub use find::{HookableProgram, find};
pub use pending::end;
