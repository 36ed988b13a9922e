//! Threads of the program in which our code runs, and threads of our own.
//!
//! ```text
//! os_thread     a thread that needs no thread-local data
//! signals       threads that take no signal
//! cancellation  waits in threads that the program cancels
//! sleeper       sleep until another thread says that there is work
//! ```

mod cancellation;
mod os_thread;
mod signals;
mod sleeper;

pub use cancellation::uncancelled;
pub use os_thread::{
    OsThread, cpu_millis, in_own_thread, is_writer_thread, name_of_thread, prepare, run,
};
pub use signals::BlockedSignals;
pub use sleeper::Sleeper;
