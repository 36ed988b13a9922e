//! Runs a piece of Python in a process that runs already: CPython 3.11 to 3.15, without a debugger, and without anything
//! of nthbyte in the process before.
//!
//! ```text
//! Target::open  process: what /proc says         ─▶ Refusal
//!               memory, image, interpreter: the exported functions of the Python there
//! ready::ask    the socket of a process that was prepared
//! Target::run   remote, pypy: what interpreters offer themselves, by a file
//!               x86_64::inject ─▶ thread: stop, enter, let go
//!                              ─▶ stub: what runs there, frame: how it ends
//! ```
//!
//! A process under attach is unharmed, also if this one is killed at any moment: no thread ever stands where only we could
//! bring it back. Each change of a thread's registers leads into code that ends with `rt_sigreturn`, with a frame that was
//! written before. What may be left behind is a mapping of 44 KiB. docs/internals/attach.md says more.

#![cfg(target_os = "linux")]

mod awaited;
#[cfg(target_arch = "x86_64")]
mod by_file;
#[cfg(target_arch = "x86_64")]
mod denial;
// Elsewhere no process is entered, and some of this is not asked for.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod process;
pub mod ready;
mod refusal;

#[cfg(target_arch = "x86_64")]
mod image;
#[cfg(target_arch = "x86_64")]
mod interpreter;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod memory_files;
#[cfg(target_arch = "x86_64")]
mod pypy;
#[cfg(target_arch = "x86_64")]
mod remote;
#[cfg(target_arch = "x86_64")]
mod script;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
mod target;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_target.rs"]
mod target;

pub use awaited::Awaited;
pub use process::{is_stopped, own_number, owner, state};
pub use refusal::Refusal;
pub use target::{Target, Way};
