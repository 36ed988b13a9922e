//! The library that samples native memory: calls of `malloc` and its relatives, and mappings of anonymous memory.
//!
//! An agent loads it into a running process, and the calls of all libraries are led to it ([`slots`]). Or the dynamic
//! linker loads it before all other libraries of a process (`LD_PRELOAD`), so that its functions replace the C
//! library's. Each function passes its call on to the function that it replaces: the C library's, or another preloaded
//! allocator's.
//!
//! ```text
//! malloc ─ countdown of the thread ─▶ the replaced malloc
//!                  │ at a sample point
//!                  ▼
//!             malloc, of 1,048 bytes or more ─▶ observer: the agent records the sample ─▶ blocks: address and token
//! free   ─ the word before the block: it is small ─▶ the replaced free
//!                  │ it is large, or there may be no word
//!                  ▼
//!             blocks: is it sampled? ─▶ observer: the agent records the free
//! ```
//!
//! # What the caller must do
//!
//! - Preload this library, or load it and attach it. It has an effect only while an agent is connected
//!   ([`nthbyte_host::preload`]).
//! - Never unload it.
//!
//! # What this crate guarantees
//!
//! - Without a connection, each function does what the replaced one does.
//! - A block that was sampled is an ordinary block of the replaced allocator: it may be freed or resized without a call
//!   of this library.
//! - Nothing here waits for another thread, except for the first call in the process.
//!
//! # What this crate does not do
//!
//! The arithmetic of sampling and the sampled blocks are in `nthbyte-requests`. It does not walk stacks, and does not write
//! files: the agent does. For other processors than x86-64 and AArch64, the library is empty.
//!
//! # Modules
//!
//! ```text
//! entry        the functions that replace others
//! processor    their machine instructions: x86_64, aarch64
//! slots        leads the calls of a running process to them
//! handles      dlsym and dlclose, for libraries that are loaded later
//! slot_pages, turn    writes to slots, by one thread at a time
//! start        what the dynamic linker calls      interface    what an agent calls
//! reports      what the agent is told of, and whose requests it is not told of
//! bundled      the allocator inside of Apache Arrow's library
//! operators    C++'s operator new and delete, if another allocator brings its own
//! calls, aligned, mappings    what runs at a sample point, and for blocks that may be sampled
//! sampler      requests that are sampled: the arithmetic
//! thread       the state of the calling thread
//! replaced     the replaced functions
//! objects      what the dynamic linker has loaded: slots, functions, needed libraries
//! definitions  which object defines a function
//! early        memory for the first calls in the process
//! ```

#![cfg_attr(test, allow(dead_code))]
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux"
))]

nthbyte_host::agent_allocator!();

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod aligned;
#[cfg(not(test))]
mod bundled;
mod calls;
mod definitions;
mod early;
#[cfg(not(test))]
mod entry;
mod functions;
#[cfg(not(test))]
mod handles;
mod interface;
mod mappings;
mod objects;
#[cfg(not(test))]
mod operators;
mod replaced;
mod reports;
mod sampler;
#[cfg(not(test))]
mod slot_pages;
#[cfg(not(test))]
mod slots;
#[cfg(not(test))]
mod start;
mod thread;
#[cfg(not(test))]
mod turn;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;
