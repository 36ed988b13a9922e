//! The agent for CPython 3.11 to 3.15, and, as the crate `nthbyte-freethreaded`, for 3.13 without the GIL.
//!
//! The agent replaces CPython's allocator for objects with its own heap. It converts each sampled allocation into
//! events of a profile: the allocation site (the Python stack), the object's type and size, and the time of the free.
//!
//! # What the caller must do
//!
//! - Call the functions of this crate with the GIL of the main interpreter held. The token [`Gil`] proves this. Each
//!   entry point creates it: a function of the module, a hook, the heap's observer. Without a GIL, it proves that the thread has
//!   an attached state, and many threads may have one.
//! - Never unload the library: the patches stay until the process ends.
//!
//! # What this crate does not do
//!
//! - Without the GIL, CPython's own allocator stays, and samples are taken in it (`nthbyte-mimalloc`). There are no snapshots of who
//!   holds what.
//! - Other interpreters of the process with their own GIL keep the original allocator, and are not sampled.
//! - Memory outside the domains `OBJ` and `MEM` is sampled by the preloaded library (`nthbyte-native`), if there is
//!   one. This crate gives such a sample its stack.
//!
//! # Rules
//!
//! - The agent is not borrowed while Python code runs. The token enforces this ([`Gil`]).
//! - Code inside an allocation does not wait, does not allocate from the heap, creates no object and runs no Python
//!   code. It also holds no reference, so the agent never delays the free of an object.
//! - A panic ends the session, not the program: each entry point catches it.
//!
//! # Modules
//!
//! ```text
//! module       the extension module: start, stop, prepare, compile, execute
//! recursion    calls the program so that no frame below it counts
//! agent        the agent of the process: sessions, and the functions that the patches call
//! agent_lock   who has the agent, without a GIL
//! verify       compares the layout with the results of CPython's public functions
//! patches/     the replaced parts of the interpreter, one file each
//! ticks/       time samples: timers, the signal handler, and what turns its words into stacks
//! labels/      what the program works on: its context variable, and the walk to its value
//! holders/     snapshots of who holds live objects
//! sampling/    converts sampled blocks into events: stack, type, thread, lifetime
//! heap/        memory totals, and the collapse into huge pages
//! layout/      the differences between versions, one file each
//! api/         CPython's functions, looked up by name; the token of the GIL
//! ```
//!
//! Each module uses only the modules below it.

#[cfg(not(feature = "free-threaded"))]
nthbyte_host::agent_allocator!();

mod agent;
mod agent_lock;
mod api;
mod heap;
mod holders;
mod host;
mod labels;
mod layout;
mod module;
mod patches;
mod pending;
mod recursion;
mod sampling;
mod ticks;
mod verify;

pub use agent::{Agent, AgentRef};
pub use api::Gil;
#[cfg(feature = "free-threaded")]
pub use module::PyInit__native;

#[cfg(feature = "test-seams")]
#[doc(hidden)]
pub mod seams;
