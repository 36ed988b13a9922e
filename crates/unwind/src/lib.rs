//! Native stacks: the frames of C, C++ and Rust code above which the calling thread runs, or above which a signal has
//! interrupted a thread.
//!
//! ```text
//! any thread, in a sample                                 the writer thread
//! registers ─▶ framehop ─▶ frame ─▶ frame ─▶ …          modules: /proc/self/maps ─▶ file ─▶ .eh_frame, build id
//!                 │  reads the stack (`stack`)                      │
//!                 └───────────── tables of the module ◀─────────────┘
//! frame: module and address relative to it ─▶ a node of the stack tree
//! ```
//!
//! A walk finds the caller of each frame by the tables that compilers write for exceptions (`.eh_frame`), and by frame
//! pointers in modules without tables. The rule of each address is kept, so that the next walk does not read the tables.
//! A frame is recorded as a module and an address in it; functions are looked up when a profile is read.
//!
//! # What the caller must do
//!
//! - Use the [`Unwinder`] with a [`Recording`](nthbyte_session::Recording) of the session, so that one thread uses it at a
//!   time.
//! - Be in the same library as this crate: its frames at the inner end are left out. Or, in a program that has this crate
//!   in itself, say where in the stack nthbyte's frames end.
//! - If a walk has met an unknown library ([`Unwinder::unfinished`]), let the sample wait: the writer thread
//!   looks at the library, and completes the stack from a copy of its memory.
//!
//! # What this crate guarantees
//!
//! - A walk allocates nothing, takes no lock, opens no file and has an end: [`MAX_DEPTH`] frames, and for each of them a bounded
//!   number of steps, because tables with branches in their expressions are not used.
//! - A wrong table or a wrong frame pointer leads to wrong frames or to none, but to no fault: each word of the stack is
//!   read inside of the calling thread's own stack, or through the kernel. Tables are read from mappings of the files that
//!   belong to this crate, so a library may be unloaded at any time.
//! - Modules are looked for when a session begins, when a walk has met an unknown address, and once in a second if there
//!   are walks. No thread of the program waits for it, but the one that begins or ends the session.
//!
//! # What this crate does not do
//!
//! It knows no functions and no lines, and nothing of interpreters. On other processors than x86-64 and AArch64, no walk
//! begins.
//!
//! # Modules
//!
//! ```text
//! walker    the walk: registers, frames              upkeep    who knows the modules, and when they are looked for
//! copied    a walk that waits          cfi       tables that would hold a walk are refused
//! interrupted  a thread in a signal handler, walked later from a copy of its stack
//! frame     frames, and where a walk ends      looks       what walks have met since the last look
//! modules   the loaded modules, and their tables        maps   /proc/self/maps        image   a library's file
//! stack     words of the stack, read within its bounds        bounds    of the calling thread's stack
//! walk_stack  the stack that a walk runs on
//! processor what depends on the processor: x86_64, aarch64, other_processor
//! signed_returns  tables of code with pointer authentication (AArch64)
//! ```

#![cfg(target_os = "linux")]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod bounds;
mod cfi;
mod copied;
mod frame;
mod image;
mod interrupted;
mod looks;
mod maps;
mod modules;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other_processor;
mod signed_returns;
mod stack;
mod upkeep;
mod walk_stack;
mod walker;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use other_processor as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub use copied::UnfinishedWalk;
pub use frame::{MAX_DEPTH, NativeFrame};
pub use interrupted::{Interrupted, Registers, prepare};
pub use upkeep::{begin, begin_in_program, is_possible, keep_up, unwinder};
pub use walker::Unwinder;
