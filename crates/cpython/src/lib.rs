//! The part of nthbyte that lives inside CPython 3.11 to 3.15, builds with the GIL.
//!
//! It puts a heap of its own in the place of CPython's allocator for objects, and turns each allocation that the heap samples
//! into events of a profile: who allocated (the Python stack), what (type and size), and when it was freed.
//!
//! # What the caller owes it
//!
//! - The functions of this crate are called with the GIL of the main interpreter held. The token [`Gil`] says so,
//!   and is made at each way in: a function of the module, a hook, the heap's observer.
//! - What is put in place stays for ever, and so must the library: it is never unloaded.
//!
//! # What it is not for
//!
//! - Free-threaded builds, and other interpreters of the process that have a GIL of their own: the heap has one lock.
//!   The former are refused, the latter are served by the allocator from before and not sampled.
//! - Memory that does not come from the domains `OBJ` and `MEM`: what an extension takes from `malloc` is not seen.
//! - Time samples.
//!
//! # Rules
//!
//! - The agent is not borrowed while Python runs. The token keeps it ([`Gil`]).
//! - What runs inside of an allocation does not wait, does not allocate from the heap, creates no object and runs no Python code.
//!   It holds no reference either, so every object is freed when it would be without the agent.
//! - A panic ends the session, not the program: each way in catches it.
//!
//! # The rooms
//!
//! ```text
//! module       the extension module: start, stop, prepare, compile
//! agent        the one agent of the process; sessions; what the patches call
//! verify       compares the layout with what CPython's public functions say, before anything is touched
//! patches/     what of the interpreter is replaced, one file each: what, when, how it is undone
//! sampling/    a sampled block becomes events: the stack, the type, the thread, its lifetime
//! heap/        memory totals, and huge pages as a program grows
//! layout/      what differs from version to version, one file each
//! api/         CPython's functions, found by name; the token of the GIL
//! memory       reads that cannot fault
//! ```
//!
//! Each room uses those below it only.

mod agent;
mod api;
mod heap;
mod layout;
mod memory;
mod module;
mod patches;
mod sampling;
mod verify;

pub use agent::{Agent, AgentRef};
pub use api::Gil;

#[cfg(feature = "test-seams")]
#[doc(hidden)]
pub mod seams;
