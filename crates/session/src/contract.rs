//! The contract between a session and its host.
//!
//! A host is whatever a process runs: an interpreter, or a program of its own. It implements one trait, and passes the value to
//! [`Session::start`](crate::Session::start). All functions have a default, for hosts without that: a host that samples
//! one heap and nothing else has to implement none.
//!
//! ```text
//! session, native memory:  place, labels, is_own, set_native_period, busy_counter
//! session, time samples:   record_ticks
//! writer thread:           prepare, arenas, own_memory, account, restore_huge_pages
//! forks and ends:          begin_in_child, counts_threads, ending_signals
//! ```

use std::ops::Range;

use nthbyte_host::preload::{self, BusyCounter, Request};
use nthbyte_profile::Composition;
use nthbyte_profile::event::{LabelSetId, NodeId, ThreadId};

use crate::recording::Recording;

/// What a session asks of its host. No function may panic or wait without a bound. Each says in which thread and under which locks
/// it is called. A call may still be running when the session has ended.
pub trait Host: Sync {
    /// Called by the writer thread before each block, and before it completes a profile because the process ends, without a
    /// lock: looks at libraries that were loaded. It may read files: nobody waits for it but a fork, for a bounded time,
    /// and the end of the session.
    fn prepare(&self) {}

    /// Records some of the ticks that wait, by [`Recording::ticks`], few enough that other threads do not wait for long. Called
    /// by the writer thread between two blocks, and by the thread that ends the session. Returns the number of ticks.
    fn record_ticks(&self, _recording: &mut Recording<'_>) -> usize {
        0
    }

    /// Called in the child of a fork when its profile begins, by the thread that records its first event, which holds the
    /// session's lock.
    fn begin_in_child(&self) {}

    /// Whether someone will count the process's threads. Called in the parent of a fork, by the thread that forks, while `fork`
    /// has not returned. Then the writer thread stays away until the host calls [`let_writer_run`](crate::let_writer_run).
    fn counts_threads(&self) -> bool {
        false
    }

    /// Signals besides SIGTERM that end the process when a user stops it: SIGINT, SIGHUP; 0 for none. The profile is completed
    /// first.
    fn ending_signals(&self) -> [i32; 2] {
        [0; 2]
    }

    /// Calls its argument with each arena of the host's heap, in the order of addresses. As for the two functions below, the
    /// writer thread calls it at any time, without a lock, until the process ends: what may be unmapped meanwhile is read through
    /// the kernel.
    fn arenas(&self, _visit: &mut dyn FnMut(Range<usize>)) {}

    /// Makes some of the heap's memory huge pages again, after a copy of the process has split them: from a piece on whose number
    /// the call before has returned, at first 0. Returns the number of the next piece, if there is one. Called by the writer thread
    /// between two blocks: it takes some milliseconds at most.
    fn restore_huge_pages(&self, _from: u32) -> Option<u32> {
        None
    }

    /// Calls its argument with each range of addresses that belongs to the agent.
    fn own_memory(&self, _visit: &mut dyn FnMut(Range<usize>)) {}

    /// Adds the host's parts to a composition. `is_thorough`: the use of the heap's pages too.
    fn account(&self, _composition: &mut Composition, _is_thorough: bool) {}

    /// Tells the thread and the stack of a sample of native memory: of the calling thread, which makes the request. `None` if
    /// there is no room to record them.
    ///
    /// It runs inside of a call of `malloc` or `mmap`, in any thread, with any lock of the program held. There is one call
    /// at a time, because the recording is borrowed.
    fn place(&self, _recording: &mut Recording<'_>, _request: &Request) -> Option<Placed> {
        None
    }

    /// The labels of what the calling thread works on, for a sample of native memory. `None` if there is no room to record
    /// them. Called as [`place`](Self::place) is.
    fn labels(&self, _recording: &mut Recording<'_>) -> Option<LabelSetId> {
        Some(LabelSetId::NONE)
    }

    /// Whether a request of the calling thread is the host's own. Called before each sample of native memory is recorded.
    fn is_own(&self, _request: &Request) -> bool {
        false
    }

    /// Sets the period of native memory, in bytes. A thread has it from its next sample on. Called while native memory is
    /// recorded, in the middle of a recording; by default, it is the library for native memory that samples.
    fn set_native_period(&self, period: u64) {
        preload::set_period(period);
    }

    /// A counter of the calling thread for a host that samples its own requests; by default, the native library's, if it is
    /// there.
    fn busy_counter(&self) -> Option<BusyCounter> {
        None
    }
}

/// The thread and the stack of a sample of native memory.
pub enum Placed {
    /// Both are known.
    Now(ThreadId, NodeId),
    /// The stack is completed by [`complete`](crate::native::complete). Only if [`may_wait`](crate::native::may_wait) has allowed it.
    Later(ThreadId, Box<dyn UnfinishedStack>),
}

/// What a host keeps of a stack.
pub trait UnfinishedStack: Send {
    /// Whether what the stack needs is known by now. Stacks are completed in the order in which they were kept: one that is
    /// ready waits for those before it.
    fn is_ready(&self, recording: &mut Recording<'_>) -> bool;

    /// How many bytes are kept, about.
    fn bytes(&self) -> usize;

    /// The stack. Called once, in the writer thread, or in the thread that stops native memory. `None` if there is no room.
    fn stack(self: Box<Self>, recording: &mut Recording<'_>) -> Option<NodeId>;
}
