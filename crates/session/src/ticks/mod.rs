//! Time samples: from the timers to the file.
//!
//! ```text
//! timers   the timers of threads, and their signal         rate   how many samples there can be
//! store    ticks, from a signal handler to a recording     backlog   the ticks that wait
//! ```

pub(crate) mod backlog;
pub mod timers;

mod rate;
mod store;

pub use backlog::{ROOM_FOR_TICKS, record_waiting};
pub use rate::Rate;
#[cfg(test)]
pub(crate) use store::{HEADER, LARGEST_BACKLOG, LARGEST_WITH_MEMORY};
pub use store::{LONGEST_MEMORY, LONGEST_STACK, TICKS, Tick, TickSamples, Ticks, Walked};
