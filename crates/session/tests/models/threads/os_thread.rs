//! Stands for the thread of the operating system.

use std::io;

use loom::thread::JoinHandle;

use crate::sync::be_thread;

/// The model's threads share one table of descriptors.
pub(crate) const fn is_writer_thread(_: i32) -> bool {
    false
}

/// No model waits for so long that it matters.
pub(crate) const fn cpu_millis() -> u32 {
    0
}

pub(crate) fn run(work: fn()) -> io::Result<()> {
    OsThread::spawn(work).map(OsThread::join)
}

pub(crate) struct OsThread(JoinHandle<()>);

impl OsThread {
    pub(crate) fn spawn<W: FnOnce() + Send + 'static>(work: W) -> io::Result<Self> {
        Ok(Self(loom::thread::spawn(move || {
            be_thread(9);
            work();
        })))
    }

    pub(crate) fn join(self) {
        self.0.join().unwrap();
    }
}
