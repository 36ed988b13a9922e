//! Memory totals: of the heap, and of the process.

use std::ffi::c_void;
use std::io::Read;

use nthbyte_heap::{Heap, Statistics};
use nthbyte_profile::event::{Memory, Nanos};

/// How old a reading of the resident set size may be; a reading costs some 4 µs.
const RSS_AGE: Nanos = Nanos(10_000_000);
/// Between collections, totals are taken with a sample when the last are older than this.
const MEMORY_AGE: Nanos = Nanos(100_000_000);

/// Takes totals.
pub struct Totals {
    /// The heap, as the context of its functions.
    heap: *mut c_void,
    rss: Option<(Nanos, u64)>,
    taken: Option<Nanos>,
    /// What the heap had counted when this process was forked off.
    allocated_before: u64,
}

impl Totals {
    /// Of this heap.
    #[must_use]
    pub const fn of(heap: *mut c_void) -> Self {
        Self {
            heap,
            rss: None,
            taken: None,
            allocated_before: 0,
        }
    }

    /// Forgets readings; their times are of another session.
    pub fn reset(&mut self) {
        (self.rss, self.taken, self.allocated_before) = (None, None, 0);
    }

    /// Begins anew in the child of a fork, whose heap has counted what the parent allocated.
    pub fn begin_in_child(&mut self) {
        self.reset();
        self.allocated_before = self.statistics().allocated;
    }

    /// What this process allocated, in blocks, of what the heap has counted.
    #[must_use]
    pub const fn own(&self, counted: u64) -> u64 {
        counted.saturating_sub(self.allocated_before)
    }

    /// Heap memory in blocks in use, in bytes.
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        self.statistics().in_use as u64
    }

    /// Whether it is time to take totals again.
    #[must_use]
    pub fn are_due(&self, now: Nanos) -> bool {
        self.taken
            .is_none_or(|taken| now.0.saturating_sub(taken.0) > MEMORY_AGE.0)
    }

    /// Takes all totals. `requested` says how much was asked for of so many bytes in blocks.
    pub fn take(&mut self, now: Nanos, requested: impl Fn(u64) -> u64) -> Memory {
        self.taken = Some(now);
        let heap = self.statistics();
        Memory {
            time: now,
            heap_used: Some(heap.in_use as u64),
            heap_reserved: Some(heap.reserved as u64),
            rss: self.rss(now),
            allocated: Some(requested(self.own(heap.allocated))),
        }
    }

    fn statistics(&self) -> Statistics {
        // SAFETY: totals are taken by the holder of the GIL; an observer may call the heap.
        unsafe { Heap::statistics(self.heap.cast()) }
    }

    fn rss(&mut self, now: Nanos) -> Option<u64> {
        match self.rss {
            Some((read, rss)) if now.0.saturating_sub(read.0) < RSS_AGE.0 => Some(rss),
            _ => {
                let rss = resident_set()?;
                self.rss = Some((now, rss));
                Some(rss)
            }
        }
    }
}

/// The second number of `/proc/self/statm`, in bytes. No descriptor is kept: see `session::output`.
fn resident_set() -> Option<u64> {
    let mut text = [0u8; 128];
    let got = std::fs::File::open("/proc/self/statm")
        .ok()?
        .read(&mut text)
        .ok()?;
    let pages: u64 = std::str::from_utf8(&text[..got])
        .ok()?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * page_size())
}

fn page_size() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
