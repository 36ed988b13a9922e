//! Models of what several threads do at once with a session: its lock, its fork state, the writer thread, the end by a
//! signal, and ticks. loom tries all orders of execution, and all values that the memory model lets a thread read.
//!
//! The files of the crate, and of `nthbyte-host`, are compiled here a second time: the real code, with the primitives of [`sync`]. Stand-ins are
//! the ring (the crate rtrb, with its orderings), the file, and what does not concern other threads.
//!
//! ```text
//! locks.rs     the lock, the fork state and the sleep
//! writers.rs   the writer thread: stopped for forks, finished, and asked by a signal handler to complete the profile
//! handlers.rs  ticks, from signal handlers to the recording that reads them; frees that wait for a recording
//! ```

#![allow(dead_code, unused_imports)] // a model uses a part of each file

/// The modules here stand for the crate below's, too.
extern crate self as nthbyte_host;

#[path = "../../../host/src/errno.rs"]
mod errno;
#[path = "../../../host/src/exit.rs"]
mod exit;
#[path = "../../src/fork_state.rs"]
mod fork_state;
#[path = "../../src/last_line.rs"]
mod last_line;
#[path = "../../../host/src/lock.rs"]
mod lock;
#[path = "../../src/ring/lost.rs"]
mod lost;
#[path = "../../src/outcome.rs"]
mod outcome;
#[path = "../../src/native/postponed.rs"]
mod postponed;
#[path = "../../src/termination.rs"]
mod termination;
#[path = "../../src/ticks/store.rs"]
mod ticks;

mod process {
    #[path = "../../../../host/src/process/descriptor.rs"]
    mod descriptor;
    pub mod image;
    #[path = "../../../../host/src/process/memory_file.rs"]
    mod memory_file;

    pub(crate) use descriptor::{HostDescriptor, Identity};
    pub use memory_file::MemoryFile;

    /// The number of the file's descriptor.
    pub(crate) fn number_of(file: &MemoryFile) -> i32 {
        file.descriptor.load(std::sync::atomic::Ordering::Relaxed)
    }
}

mod writer {
    pub mod drain;
    #[path = "../../../src/writer/handle.rs"]
    pub mod handle;
    #[path = "../../../src/writer/progress.rs"]
    mod progress;
    #[path = "../../../src/writer/thread.rs"]
    mod thread;

    pub(crate) use progress::LastWords;
}

mod native {
    pub(crate) use crate::postponed;
}

mod ring {
    pub(crate) use crate::lost::Lost;
}

mod threads {
    mod os_thread;
    #[path = "../../../../host/src/threads/signals.rs"]
    mod signals;
    #[path = "../../../../host/src/threads/sleeper.rs"]
    mod sleeper;

    pub(crate) use os_thread::{OsThread, cpu_millis, is_writer_thread, run};
    pub(crate) use signals::BlockedSignals;
    pub(crate) use sleeper::Sleeper;
}

mod recording;
mod sync;

use errno::keep_errno;

mod handlers;
mod locks;
mod writers;

/// Time passes with each look at the clock, so that a wait ends in every order of execution.
mod clock {
    pub(crate) fn monotonic_nanos() -> u64 {
        crate::sync::pass_time(2_000_000)
    }
}

mod keeper {
    pub(crate) struct Keeper;

    impl Keeper {
        pub(crate) const fn prepare(&self) {}

        pub(crate) const fn keep(&self) -> Option<std::time::Duration> {
            None
        }

        pub(crate) const fn record_waiting(&self) -> bool {
            false
        }
    }
}

/// The writer thread reports its cost here; no model depends on it.
mod pace {
    #[derive(Debug)]
    pub struct Spent;
}

mod preload {
    pub const NOT_INTERESTED: u64 = u64::MAX;

    pub(crate) const fn find_busy_counter() {}
    pub(crate) const fn ignore_thread() {}
}

mod memory {
    pub(crate) const fn is_short() -> bool {
        false
    }
}

use loom::thread::{self, JoinHandle};
use sync::be_thread;

/// The size of a thread's stack in words. A reader of ticks has a stack of the profiled program on its own.
const STACK_WORDS: usize = 16 << 10;

/// Starts a thread with this number.
fn spawn(number: usize, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let work = move || {
        be_thread(number);
        work();
    };
    let builder = thread::Builder::new().stack_size(STACK_WORDS);
    builder.spawn(work).unwrap()
}

/// Runs each in a thread of its own, and waits for all.
fn run(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = (2..)
        .zip(threads)
        .map(|(number, work)| spawn(number, work))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Tries all orders with at most so many preemptions.
fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        be_thread(1);
        check();
    });
}
