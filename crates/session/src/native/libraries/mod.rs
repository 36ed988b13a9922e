//! The libraries of the process, by the addresses of their code: for samples that are named by one.

mod known;
mod library;

pub use known::{at, of_caller};
pub use library::{Library, prepare};
