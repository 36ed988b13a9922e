//! PyPy's own way in, since 7.3.18: a structure that the library exports, with the path of a script and a flag.
//!
//! The main thread executes the script at the next bytecode, and says so on its standard output.
//!
//! ```text
//! struct { long counter; char cookie[8]; long pending; char path[4096]; } pypysig_counter;
//! ```

use std::time::Duration;

use crate::awaited::Awaited;
use crate::by_file::{self, Request};
use crate::image::Image;
use crate::memory::{MapsLine, Memory};
use crate::refusal::Refusal;

const COOKIE: &[u8] = b"pypysigs";
const COOKIE_AT: u64 = 8;
const PENDING_AT: u64 = 16;
const PATH_AT: u64 = 24;

/// A PyPy that can be entered.
#[derive(Clone, Copy, Debug)]
pub struct PyPy {
    counter: u64,
}

impl PyPy {
    /// Finds the structure; `None` in older versions.
    pub fn find(memory: &Memory, maps: &[MapsLine]) -> Option<Self> {
        let is_library = |one: &&MapsLine| one.offset == 0 && one.name.contains("libpypy");
        let library = maps.iter().find(is_library)?;
        let counter = Image::at(memory, library.start)?.symbol(memory, "pypysig_counter")?;
        let cookie = memory.bytes(counter + COOKIE_AT, COOKIE.len())?;
        (cookie == COOKIE).then_some(Self { counter })
    }

    /// Runs a script: see [`by_file::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(
        self,
        pid: u32,
        memory: &Memory,
        script: &str,
        limit: Duration,
        awaited: &Awaited,
    ) -> Result<String, Refusal> {
        let counter = self.counter;
        by_file::run(pid, &Counter { counter, memory }, script, limit, awaited)
    }
}

/// The structure of a process.
struct Counter<'a> {
    counter: u64,
    memory: &'a Memory,
}

impl Counter<'_> {
    fn set(&self, at: u64, value: i64) -> bool {
        self.memory.write(self.counter + at, &value.to_le_bytes())
    }
}

impl Request for Counter<'_> {
    fn room(&self) -> (&Memory, u64) {
        (self.memory, self.counter + PATH_AT)
    }

    fn make(&self, path: &[u8]) -> bool {
        self.memory.write(self.counter + PATH_AT, path) && self.set(PENDING_AT, 1)
    }

    fn is_pending(&self) -> Option<bool> {
        Some(self.memory.u64(self.counter + PENDING_AT)? == 1)
    }

    fn cancel(&self) {
        self.set(PENDING_AT, 0);
    }

    // Both sides write the counter, so this may be overwritten.
    fn remind(&self) {
        self.set(0, -1);
    }
}
