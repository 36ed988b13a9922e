//! Allocation sampling inside a stock PyPy.
//!
//! PyPy allocates by raising `nursery_free` up to `nursery_top`, and calls a slow path at that limit. This crate lowers
//! `nursery_top` to the next sample point, so the check that PyPy already makes decides which allocations are sampled.
//! It works in the unchanged PyPy of a distribution: it finds the collector in the stripped library by the form of its
//! code, hooks three of its functions, and restores them when the session ends.
//!
//! The crate records:
//!
//! - samples of allocated bytes, with stack, type, class, and whether the object survived its first minor collection;
//! - collections with their durations, memory totals, and time samples through PyPy's own `_vmprof`;
//! - samples of native memory with stacks, through the library `nthbyte-native` ([`nthbyte_session::native`]);
//! - where the collector cannot be hooked: a sample at every k-th minor collection, which PyPy reports itself
//!   ([`gc_hooks`]).
//!
//! The caller (`nthbyte/_pypy.py`) guarantees:
//!
//! - it calls the functions from Python code, in the order that `control/entry_points.rs` states;
//! - it loads the library with `RTLD_NODELETE`: hooked code and registered functions refer to it until the process
//!   ends;
//! - `nthbyte._pypy` can be imported during a session: the agent calls it to allocate, to get the interpreter's lock.
//!
//! The crate does not support:
//!
//! - a PyPy without `_vmprof`: it returns an error;
//! - two profilers at the same time: a session uses `SIGPROF` and `_vmprof` exclusively;
//! - use as a Rust library: only the C functions, and the items that their documentation needs, are public.
//!
//! A sample costs less than a microsecond for three reasons. The type and the lifetime are read at the next minor
//! collection, for many objects at a time. The stack is read from PyPy's own list of frames, without a call of
//! `_vmprof`'s handler. The steps that a stack shares with the previous stack are not looked up again.
//!
//! # Modules
//!
//! ```text
//! control      sessions for Python: the C functions, start and stop
//! collector    the work at a sample and at a collection
//! compiler     what the JIT compiler does
//! stacks       Python stacks
//! types        names of types
//! labels       what each thread works on, as Python tells it
//! holders      who holds live objects, from a copy of the process
//! sealed       the C library of that copy
//! gil_trap     a way to get the interpreter's lock
//! bounded_lock a lock for which no thread waits for long
//! gc_hooks     a sample at every k-th minor collection, which PyPy reports
//! ```
//!
//! Imports have one direction: `control → holders, compiler → collector → stacks, types → gil_trap, sealed`, and `control → gc_hooks`. For
//! example, `control` passes the names of threads as an argument; no module below reads them from `control`.
//!
//! All code inside the collector's functions runs with the interpreter's lock held. So there is one engine, without
//! locks of its own. It does not unwind through PyPy's frames, does not wait, and calls no Python code.

nthbyte_host::agent_allocator!();

pub mod gc_hooks;

mod collector;
mod compiler;
mod control;
mod gil_trap;
mod holders;
mod host;
mod labels;
mod sealed;
mod stacks;
mod types;
