//! One profiling run inside a host. All hosts share this crate: the recorder, the writer thread, the profile's file,
//! forks and time ticks.
//!
//! A *host* is the profiled process: an interpreter, or any process with a `malloc`. Another crate takes the samples
//! for each kind of host; this crate writes them to the file.
//!
//! ```text
//! Session ─ record() ─▶ Recording ── ring of records ──▶ writer thread ──▶ profile::Writer ──▶ output
//!              the lock    interner
//! ```
//!
//! # Use
//!
//! ```no_run
//! # use nthbyte_session::{Config, Host, Session};
//! # use nthbyte_profile::{Method, event::{Allocation, LostKind}};
//! struct Plain;
//! impl Host for Plain {}
//!
//! # fn sample(config: &Config, allocation: Allocation) -> Result<(), String> {
//! let meta = config.meta(Method::CutFreeLists, config.seed(), Vec::new());
//! let session = Session::start(config, meta, &Plain)?;
//! // At each sample, in any thread:
//! if let Some(mut recording) = session.record(LostKind::Allocations) {
//!     recording.allocation(allocation, config.period);
//! }
//! let outcome = session.finish(None);
//! # Ok(())
//! # }
//! ```
//!
//! # What the caller must do
//!
//! - Keep a [`Recording`] short, and run none of the program's code while it exists. No other thread can record
//!   meanwhile.
//! - Keep numbers (of functions, types, threads, stack nodes, samples) in a [`PerEpoch`] and borrow them with
//!   [`Recording::epoch`]. The session learns of a fork only when a recording begins.
//! - Remove a key (an address) before another object can have the same address: [`Session::forget_function`],
//!   [`Session::forget_type`].
//! - Run everything that an interpreter calls inside [`guarded`].
//! - In a library that lives in a foreign process: [`nthbyte_host::agent_allocator!`].
//!
//! # What this crate guarantees
//!
//! - It does not wait for the disk. Other waits last a few seconds at most: for room in the ring when every allocation
//!   is recorded, before a fork, and at the end. Events that cannot be recorded are counted as lost, and the profile
//!   contains the count.
//! - With that allocator, nothing here ends the process when memory runs out: a reserve serves the session, and events
//!   are lost.
//! - In the child of a fork, the first recording begins the child's own profile.
//!
//! # What this crate does not do
//!
//! It does not choose samples (`nthbyte-sampling`), does not walk stacks, does not depend on an interpreter, and does
//! not encode the file (`nthbyte-profile`).
//!
//! # Map
//!
//! ```text
//! contract     what a session asks of its host: one trait       keeper, hosted  the same, for those below the session
//! session      Session; why there is one lock                   start           its start
//! registry     the slots of sessions                            session_state   what threads share of one
//! begin        how a recording begins, and waits for room       guard           stops panics
//! recording/   Recording; the recorder; threads, functions, types and stack nodes by the host's keys; epochs
//! ring/        the ring, which follows the rate of events; its records; counts of lost ones
//! pace/        the period by itself
//! writer/      the writer thread, the drain, pending samples
//! output/      the profile's file, with a provisional end        claims          its claim, for launchers in Python
//! pressure/    how near the process is to a limit of its memory  groups        the control groups that limit it
//! composition/ what the resident set is made of, at intervals; how busy the process is
//! native/      native memory: samples, the library's observer, mappings by their touched parts, names of libraries
//! ticks/       time samples, from timers and a signal handler to the file
//! mark         a moment of a running session
//! labels       what threads work on: keys and values, and sets of them
//! fork         how a session handles forks                      fork_state      their one word
//! termination  completes the profile at SIGTERM, and before other ends
//! last_line    the line of such an end                         missing         events in no profile
//! end_line     the texts about a recording, for launchers in every language
//! snapshots    who holds what: a child process, and what it leaves
//! config, outcome, clock
//! ```

pub mod composition;
pub mod config;
pub mod end_line;
pub mod native;
pub mod pace;
pub mod snapshots;
pub mod termination;
pub mod ticks;

mod begin;
mod claims;
mod clock;
mod contract;
mod fork;
mod fork_state;
mod groups;
mod guard;
mod hosted;
mod keeper;
pub mod labels;
mod last_line;
mod mark;
mod missing;
mod outcome;
mod output;
mod pressure;
mod recording;
mod registry;
mod ring;
mod session;
mod session_state;
mod start;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(test)]
nthbyte_host::agent_allocator!();

pub use begin::{flush, is_recording_here, let_writer_run, record_for, record_now, wait_for_room};
pub use claims::{claim, settle};
pub use clock::Clock;
pub use config::Config;
pub use contract::Host;
pub use fork::{clock_start, forks, has_profile};
pub use guard::guarded;
pub use mark::Mark;
pub use missing::interpreter_ran;
pub use native::libraries;
pub use outcome::{Counted, SessionOutcome, copy_text};
pub use recording::{Appearance, Epoch, KeyMap, KnownType, PerEpoch, Recording, RecordingCell};
pub use session::{RUNNING_ALREADY, Session};
pub use ticks::{ROOM_FOR_TICKS, Rate, record_waiting, timers};
