//! Samples the memory of a Rust program: a global allocator around any other, which writes profiles of nthbyte.
//!
//! [`Sampled`] passes each request on to the allocator inside of it. While a [`Session`] runs, it samples one in every
//! *n* requested bytes, with the stack of the thread, and notices when that memory is freed. What it costs does not
//! depend on the number of requests, but on their bytes: see *What it costs*.
//!
//! # Use
//!
//! ```
//! use std::alloc::System;
//!
//! use nthbyte_global_alloc::{Options, Sampled};
//!
//! #[global_allocator]
//! static ALLOCATOR: Sampled<System> = Sampled::new(System);
//!
//! # fn work() {}
//! fn main() -> std::io::Result<()> {
//! #   let folder = tempfile::tempdir()?;
//! #   std::env::set_current_dir(&folder)?;
//!     let session = nthbyte_global_alloc::start(Options::new().output("work.nthb"))?;
//!     work();
//!     let outcome = session.stop();
//!     eprintln!("{} samples", outcome.samples);
//!     Ok(())
//! }
//! ```
//!
//! ```text
//! nthbyte explain work.nthb
//! ```
//!
//! Another allocator takes the place of `System`: `Sampled<tikv_jemallocator::Jemalloc>`, for example. With [`start_from_env`], the
//! user of the program decides whether it writes a profile:
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let _session = nthbyte_global_alloc::start_from_env()?;
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! NTHBYTE_OUTPUT=work.nthb NTHBYTE_EVERY=64KiB ./program
//! ```
//!
//! For functions, the program needs its symbols when the profile is read. Debug information adds those that were inlined:
//! `debug = "limited"` in its Cargo profile. With `line-tables-only`, these have no namespace.
//!
//! # What the caller must do
//!
//! - Make [`Sampled`] the global allocator. Without that, a session does not start.
//! - Have one session at a time. Not while `nthbyte run` records the process: that samples the same memory already.
//! - Never unload a library that contains this crate, once it has had a session.
//!
//! # What this crate guarantees
//!
//! - The inner allocator gets back each block with the layout that it was asked for.
//! - Without a session, a request runs the same instructions. With or without one, each thread takes the slow path once in 64 KiB.
//! - An allocation is possible wherever the inner allocator's is: before `main`, in the destructors of thread-local
//!   variables, in the child of a fork.
//! - Requests of nthbyte itself are not sampled.
//! - A session ends with its guard, or when the process exits, also with its last thread after the main one. SIGTERM,
//!   SIGINT and SIGHUP, where the program has left them at their defaults, complete the profile first. A forked child
//!   writes a profile of its own, with its number in the name.
//!
//! # What this crate does not do
//!
//! - It sees requests of Rust's global allocator only: no `malloc` of C libraries, no mappings. `nthbyte run -- ./program`
//!   sees those, and needs no change of the program.
//! - It keeps no reserve of memory: if the inner allocator has none for nthbyte, the program ends as it does when a
//!   `Vec` cannot grow. A panic inside of nthbyte ends the session; in a program with
//!   `panic = "abort"`, it ends the program.
//! - There is one more thread, which writes the file, and about 1 MiB of memory, or more with a short period. Both count as
//!   the program's. Zeroed data of 9 MiB, which nothing touches, takes address space.
//! - It samples on Linux with the GNU C library, and has stacks on x86-64. Elsewhere, requests are passed on, and a session does not
//!   start ([`ErrorKind::Unsupported`](std::io::ErrorKind::Unsupported)).
//!
//! # What it costs
//!
//! On x86-64, an allocation that is not sampled takes three instructions more, and a free seven, with a session or without.
//! `tests/instructions.rs` counts them. A loop that allocates 64 bytes and frees them, and does nothing else, takes 1.10 times
//! the CPU time that it takes with `System` alone. A sample with its free takes about 1.3 µs.
//!
//! Sampled blocks below 32 KiB begin at the start of an OS page, so that a free of any other block is recognised without a
//! search; so the inner allocator is asked for an alignment of 4096 then. The search for larger ones costs less than their free.
//! With a period below 16 KiB, the alignment would waste too much memory, and each free searches.
//!
//! # Modules
//!
//! ```text
//! options   the settings          size   a size, as a text
//! linux     fast      what each request runs              slow      a request at a sample point, and a block that may be sampled
//!           thread    the state of the calling thread     marks     which blocks may be sampled
//!           session   begin and end                       output    a name that no other file has
//! unsupported         all of this on other systems
//! ```

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod linux;
mod options;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod unsupported;

use std::alloc::System;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use linux as target;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use unsupported as target;

pub use options::Options;

/// A global allocator that samples the requests of another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled<A = System> {
    inner: A,
}

impl<A> Sampled<A> {
    /// Puts itself around an allocator.
    #[must_use]
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }

    /// The allocator inside.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

/// What a session has recorded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The path of the profile. `None` if there is none: in the child of a fork that took no sample, and where another thread
    /// ended the session, or the process's exit did.
    pub path: Option<PathBuf>,
    /// Samples in it.
    pub samples: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Why the profile is incomplete, for example: one sentence each.
    pub notes: Vec<String>,
}

/// A running session. It ends when this is dropped, and at the latest when the process exits.
#[derive(Debug)]
#[must_use = "a session ends when its guard is dropped"]
pub struct Session {
    path: PathBuf,
    is_stopped: bool,
}

impl Session {
    /// The path of the profile.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the session: writes the last events, and closes the file. Waits for the disk for a bounded time.
    #[allow(clippy::must_use_candidate, reason = "the profile is what matters")]
    pub fn stop(mut self) -> Outcome {
        self.is_stopped = true;
        target::stop()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_stopped {
            target::stop();
        }
    }
}

/// Starts a session. The calling thread is sampled at once, other threads that run after 64 KiB of requests at most.
///
/// # Errors
/// One line that says what prevents it: [`Sampled`] is not the global allocator, a session is running already, `nthbyte
/// run` records the process ([`ResourceBusy`](io::ErrorKind::ResourceBusy) for both), a setting is wrong, the file cannot be
/// written, or the system is none of those that are supported.
pub fn start(options: Options) -> io::Result<Session> {
    let path = target::start(options)?;
    Ok(Session {
        path,
        is_stopped: false,
    })
}

/// Starts a session if the environment asks for one; `None` if it does not. `NTHBYTE_OUTPUT` is the path of the profile,
/// `NTHBYTE_EVERY` the period (`64KiB`, `1` or `auto`), and `NTHBYTE_SEED` the seed.
///
/// # Errors
/// As for [`start`], and for values that cannot be read.
pub fn start_from_env() -> io::Result<Option<Session>> {
    Options::from_env()?.map(start).transpose()
}
