//! libnthbyte: the part of nthbyte that lives inside the interpreter.
//!
//! One shared library for all interpreters; it finds out where it is when it is started ([`ffi`]).
//! [`session`] is one profiling run, the same everywhere; [`cpython`] and [`pypy`] are the two ways
//! to sample.
//!
//! Inside someone's interpreter this crate is a guest. What runs on an allocator's slow path does not
//! panic, does not wait, does not allocate from the heap that it is in and creates no Python object.

pub mod cpython;
pub mod ffi;
mod image;
mod memory;
pub mod pypy;
pub mod session;
