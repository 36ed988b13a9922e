//! Allocation sampling inside a stock PyPy.
//!
//! PyPy allocates by raising `nursery_free` up to `nursery_top`, and calls a slow path when it gets there. This crate
//! lowers `nursery_top` to the next sample point, so that the check that PyPy makes anyway decides what is sampled. It
//! does so in the PyPy that a distribution ships: it finds the collector in the stripped library by the shape of its
//! code, hooks three of its functions, and takes everything back when the session ends.
//!
//! What it does:
//!
//! - samples of allocated bytes, with stack, type, class, and whether the object outlived its first minor collection;
//! - collections with their durations, memory totals, and time samples through PyPy's own `_vmprof`;
//! - where the collector cannot be hooked: a sample at every k-th minor collection, which PyPy reports itself
//!   ([`gc_hooks`]).
//!
//! What the caller (`nthbyte/_pypy.py`) owes it:
//!
//! - the functions are called in the order that `control/entry_points.rs` states, from Python code;
//! - the library is loaded with `RTLD_NODELETE`: hooked code and registered functions lead into it for good;
//! - `nthbyte._pypy` stays importable during a session: the agent has it allocate, to get the interpreter's lock.
//!
//! What it is not for:
//!
//! - a PyPy built without `_vmprof`: it refuses;
//! - memory that is no object of the collector: `array.array`, buffers, the compiler's machine code;
//! - two profilers at once: `SIGPROF` and `_vmprof` are its own during a session;
//! - use as a Rust library: what is public is the C functions and what their documentation needs.
//!
//! Why a sample costs less than a microsecond: the type and the lifetime are looked up at the next minor collection, many
//! objects at a time; the stack is read from PyPy's own list of frames instead of asking `_vmprof`'s handler; and the
//! steps that a stack shares with the one before are not looked up again.
//!
//! # Modules
//!
//! ```text
//! control      what Python asks for: the C functions, a session from start to stop
//! collector    what happens at a sample and at a collection
//! stacks       who runs
//! types        what objects are called
//! gil_trap     how the interpreter's lock is got
//! binary       the interpreter's machine code: all that depends on the processor
//! gc_hooks     a sample at every k-th minor collection, which PyPy reports
//! ```
//!
//! Imports go one way: `control → collector → stacks, types → gil_trap → binary`, and `control → gc_hooks`. So the
//! name threads have, say, is an argument of what `control` calls, and nothing below asks `control` for it.
//!
//! All that runs inside the collector's functions runs with the interpreter's lock held. So there is one engine, without
//! locks of its own. It does not panic through PyPy's frames, does not wait, and calls no Python.

pub mod gc_hooks;

mod binary;
mod collector;
mod control;
mod gil_trap;
mod stacks;
mod types;
