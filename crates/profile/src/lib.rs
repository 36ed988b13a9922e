//! What a session saw: the events, the stack tree, and the file (`.nthb`) that holds them.
//!
//! An agent makes [`event::Event`]s and gives them to a [`Writer`]; reports and converters ask a
//! [`model::Profile`] that a [`Reader`] has read. This crate knows nothing of Python.

pub mod event;
mod format;
pub mod meta;
pub mod model;
mod samples;
mod varint;
mod writer;

pub use meta::{Distances, Meta, Method};
pub use model::Profile;
pub use writer::{Writer, create};
