//! One profiling run inside a host, and what every host shares: the recorder, the writer thread, the profile's
//! file, forks, time ticks.
//!
//! A *host* is a program that was not made for us: an interpreter, or any process with a `malloc`. A crate for each host takes
//! the samples; this one brings them into the file.
//!
//! ```text
//! Session ─ record() ─▶ Recording ── ring of records ──▶ writer thread ──▶ profile::Writer ──▶ output
//!              the lock    interner
//! ```
//!
//! # Use
//!
//! ```no_run
//! # use nthbyte_session::{Config, Session};
//! # use nthbyte_profile::{Method, event::{Allocation, LostKind}};
//! # fn sample(config: &Config, allocation: Allocation) -> Result<(), String> {
//! let meta = config.meta(Method::CutFreeLists, config.seed(), Vec::new());
//! let session = Session::start(config, meta)?;
//! // At each sample, in any thread:
//! if let Some(mut recording) = session.record(LostKind::Allocations) {
//!     recording.allocation(allocation);
//! }
//! let outcome = session.finish(None);
//! # Ok(())
//! # }
//! ```
//!
//! # What the caller owes
//!
//! - A [`Recording`] is short, and nothing of the program runs while there is one. No other thread can record meanwhile.
//! - Numbers (of functions, types, threads, stack nodes, samples) are kept in a [`PerEpoch`] and borrowed with
//!   [`Recording::epoch`]. A fork is noticed when a recording is made, and nowhere else.
//! - A key (an address) is forgotten before it can be that of another object: [`Session::forget_function`],
//!   [`Session::forget_type`].
//! - What an interpreter calls runs inside of [`guarded`].
//!
//! # What it does for the host
//!
//! - It does not wait for the disk, and where it waits (for room when every allocation is recorded, before a fork, at the end)
//!   it does for a few seconds at most. What cannot be recorded is counted as lost, and the profile says how much.
//! - It does not abort for want of memory while recording.
//! - In the child of a fork the first recording begins a profile of the child's own.
//!
//! # What it is not for
//!
//! It does not decide what is sampled (`nthbyte-sampling`), walks no stacks, knows no interpreter, and does not know the
//! format of the file (`nthbyte-profile`).
//!
//! # Map
//!
//! ```text
//! session     Session and Recording: what hosts use; why there is one lock
//! registry    where sessions are                        lock      what a signal handler may ask for
//! lost        counts of events that could not be recorded
//! recorder    the producer of the ring                  record    what travels through it
//! interner    threads, functions, types, stack nodes by the host's keys; epochs
//! fork        what a fork leaves to do: one state
//! writer      the writer thread, the drain, pending samples
//! output      the profile's file, with a provisional end
//! ticks       time samples, from a signal handler on
//! guard       panics
//! process     descriptors, reads that cannot fault, resident size, the library's image
//! config, outcome, clock
//! ```

pub mod config;
pub mod process;
pub mod ticks;

mod clock;
mod fork;
mod guard;
mod interner;
mod lock;
mod lost;
mod outcome;
mod output;
mod record;
mod recorder;
mod registry;
mod session;
#[cfg(test)]
mod tests;
mod writer;

pub use clock::{Clock, monotonic_nanos};
pub use config::Config;
pub use guard::guarded;
pub use interner::{Appearance, Epoch, KeyMap, KnownType, PerEpoch};
pub use outcome::{Outcome, copy_text};
pub use session::{Recording, Session};
