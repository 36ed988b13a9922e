//! The thread that writes the file, and how it is stopped before a fork and started again.
//!
//! ```text
//! handle    the thread, as the recorder sees it: started, stopped, waited for
//! thread    the thread itself: takes records from the ring until a request ends it
//! drain     converts records into blocks of the file
//! progress  how far it has come
//! arenas    the arenas of samples, until they are written
//! keep      a profile in several files, of which old ones are dropped
//! pending   samples that are published provisionally at the end of the file
//! ```
//!
//! The thread runs none of the program's code and needs no lock of the interpreter, so a thread that holds such a lock
//! can wait for it. The wait ends after [`LONGEST_WAIT`]: a write to a pipe without a reader, or to a network that has
//! failed, may never end. The thread is stopped before a fork; see [`crate::fork`].

mod arenas;
mod drain;
mod file;
mod handle;
mod keep;
mod pending;
mod progress;
mod thread;

pub(crate) use drain::Drain;
pub(crate) use handle::{LONGEST_WAIT, Writer};
#[cfg(test)]
pub(crate) use pending::Pending;
pub(crate) use progress::LastWords;
