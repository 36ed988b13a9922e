//! Native memory: samples of `malloc`, its relatives and `mmap`, or of a Rust program's global allocator.
//!
//! ```text
//! sampled     samples and frees, from any thread, with any lock held
//! live        those that are in use
//! observer    from the library for native memory
//! unfinished  samples whose stack the writer thread completes
//! touched     sampled mappings, and how much of each is in memory     pieces  parts of them
//! postponed   frees that wait for a recording
//! libraries   the libraries that samples are named by
//! ```

pub mod libraries;
pub(crate) mod touched;
pub(crate) mod unfinished;

mod live;
mod observer;
mod pieces;
mod postponed;
mod sampled;

pub use live::live;
pub use nthbyte_host::preload::{
    BusyCounter, Interface, Kind, LAZY, MOST_RANGES, NOT_INTERESTED, NativeObserver,
    NativeSettings, Request, SYMBOL, VERSION, interface, load, unobserved,
};
pub use observer::{connect, disconnect, is_available};
pub use sampled::{
    SampledRequest, add_sources, begin, count_whole_mappings, end, freed, look, lost, may_wait,
    sampled, unmap,
};
pub(crate) use sampled::{host, is_recorded};
pub use unfinished::{are_waiting, complete};

pub use crate::contract::{Placed, UnfinishedStack};
