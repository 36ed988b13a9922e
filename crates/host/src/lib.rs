//! To live in a foreign process: the one door to the system for code that others run.
//!
//! An agent is a guest in a process that knows nothing of it. It may be called inside `malloc`, in a signal handler, in the child of
//! a fork, in a thread that is cancelled, or when there is no memory left. What it asks of the system then is in this
//! crate, each thing once.
//!
//! # Use
//!
//! ```
//! use nthbyte_host::{BoundedLock, clock::monotonic_nanos, keep_errno};
//!
//! static SEEN: BoundedLock<u64> = BoundedLock::new(0);
//!
//! /// Runs inside of the program's `malloc`.
//! fn allocated() {
//!     keep_errno(|| {
//!         if let Some(mut seen) = SEEN.lock() {
//!             *seen = monotonic_nanos();
//!         }
//!     });
//! }
//! # allocated();
//! ```
//!
//! # What the caller must do
//!
//! - In a library that lives in a foreign process: [`agent_allocator!`].
//! - Let waits in a thread of the program run [`uncancelled`](threads::uncancelled), and code inside an allocation keep `errno`
//!   ([`keep_errno`]).
//!
//! # What this crate guarantees
//!
//! - Nothing waits without a bound, and nothing takes memory of the C library.
//! - With [`agent_allocator!`], nothing ends the process when memory runs out: a reserve serves the agent.
//! - Memory that may be unmapped meanwhile is read through the kernel ([`process::Probe`]).
//!
//! # What this crate does not do
//!
//! It knows nothing of sampling, of profiles, or of interpreters.
//!
//! # Map
//!
//! ```text
//! memory     the agents' allocator, with a reserve; mappings; the size of OS pages
//! threads    threads of our own; signals and cancellation in the program's
//! process    descriptors, reads that cannot fault, mappings, images, the list of threads, forks
//! lock       a lock that a signal handler may try to take     bounded_lock   one for which no thread waits for long
//! clock      clocks of the system                             errno          what a call leaves of it
//! exit       the end of the process                           atomic_fn      a function that C code calls
//! probes     for tracers of the system
//! preload    the interface of the library for native memory   sync           the primitives, which models replace
//! ```

pub mod clock;
pub mod exit;
pub mod lock;
pub mod memory;
pub mod preload;
pub mod probes;
pub mod process;
pub mod sync;
pub mod threads;

mod atomic_fn;
mod bounded_lock;
mod errno;

#[cfg(test)]
agent_allocator!();

pub use atomic_fn::{AtomicFn, FunctionPlace};
pub use bounded_lock::BoundedLock;
pub use errno::{errno, keep_errno, set_errno};
