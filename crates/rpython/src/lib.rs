//! The collector of programs that are translated with RPython: PyPy, and others.
//!
//! RPython's default collector (`incminimark`) allocates by raising `nursery_free` up to `nursery_top`, and calls a slow path
//! at that limit. This crate finds the collector in the machine code, with or without symbols, hooks its functions, and does
//! the arithmetic by which the limit stands at the next sample point.
//!
//! ```text
//! agent of PyPy, agent of programs ─▶ binary: Library, Collector::find, Detour
//! hooks of the agent               ─▶ Nursery: is this a sample point?   PendingSample: what became of the object
//!                                  ─▶ Majors: which step was that?   Backlog ─▶ Recording
//! ```
//!
//! # What the caller must do
//!
//! - Place and remove hooks, and call all methods of [`Nursery`], only while no other thread can be inside of the collector:
//!   with the interpreter's lock, or before there is a second thread.
//! - Never unload the library that has the hooks.
//!
//! # What this crate guarantees
//!
//! - Nothing is changed unless the code is as expected; an error says what was not.
//! - No page is ever writable and executable at once.
//!
//! # What this crate does not do
//!
//! It decides nothing of a session, and knows no stacks and no types.
//!
//! # Modules
//!
//! ```text
//! binary    the machine code: everything that depends on the processor
//! hooked    functions of the collector that are hooked
//! nursery   the value of `nursery_top`, so that the next sample point is not missed
//! pending   sampled objects until the next minor collection
//! majors    the steps of major collections
//! compiler  what a JIT compiler does, by the sections of RPython's log
//! backlog   finished events that wait for room in the ring
//! ```

pub mod backlog;
pub mod binary;
pub mod compiler;
mod hooked;
pub mod majors;
pub mod nursery;
pub mod pending;

pub use hooked::{HookedFunction, MajorStep, Minor, Reserve};
pub use majors::Majors;
pub use nursery::{Nursery, SlowPathOutcome};
pub use pending::PendingSample;
