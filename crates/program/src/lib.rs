//! The agent for programs without an interpreter: C, C++, Rust, and whatever else calls `malloc`.
//!
//! `nthbyte run` preloads this library next to the library of `nthbyte-native`, which samples native memory. This one begins
//! the session before the program's `main`, gives each sample its native stack, and ends the session with the process.
//!
//! ```text
//! nthbyte run ─ exec, LD_PRELOAD, NTHBYTE_PROGRAM ─▶ start: environment ─▶ agent: Session, native::connect
//! malloc ─ libnthbyte_native.so, at a sample point ─▶ agent: place ─▶ unwind: the stack
//! object of an RPython program ─ its own check, at a sample point ─▶ objects ─▶ unwind: the stack
//! exit ─▶ start: the end ─▶ agent ─▶ one line on stderr          _exit, SIGTERM ─▶ the writer thread completes
//! ```
//!
//! # What the caller must do
//!
//! - Preload the library, after the library of `nthbyte-native`, with its settings in the environment: see `settings`.
//!   Without settings it does nothing.
//!
//! # What this crate guarantees
//!
//! - The programs that this one starts see the environment that it would have without nthbyte, and are not profiled.
//!   A forked child has a profile of its own.
//! - The process ends as it does without nthbyte, with the same status or signal. Waits for the disk at the end have a
//!   bound, the session's.
//!
//! # Modules
//!
//! ```text
//! start     what the dynamic linker calls: before main, and at exit; the functions `_exit` and `_Exit`
//! settings  the session's settings, taken out of the environment
//! agent     the session, by the library for native memory
//! objects   samples of a translated RPython program's objects, in its nursery
//! end_line  prints the line on stderr when the program has ended
//! ```

#![cfg_attr(test, allow(dead_code))]
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux"
))]

nthbyte_host::agent_allocator!();

mod agent;
mod end_line;
mod objects;
mod settings;
#[cfg(not(test))]
mod start;
