//! x86-64: how a thread is stopped, what runs in the process, and how it comes back.

pub mod frame;
pub mod inject;
pub mod stub;
pub mod thread;
