//! Counts of events that could not be recorded.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use nthbyte_host::sync::AtomicU64;
use nthbyte_profile::event::LostKind;

/// Counts of lost events, by [`LostKind`]; and the last one counts all, and is never taken.
#[derive(Debug, Default)]
pub(crate) struct Lost([AtomicU64; 3], AtomicU64);

impl Lost {
    pub(crate) fn add(&self, kind: LostKind, events: u64) {
        if events > 0 {
            self.0[kind as usize].fetch_add(events, Relaxed);
            self.1.fetch_add(events, Relaxed);
        }
    }

    /// Returns the counts since the last call, and resets them.
    pub(crate) fn take(&self) -> [(LostKind, u64); 3] {
        [LostKind::Allocations, LostKind::CpuSamples, LostKind::Other]
            .map(|kind| (kind, self.0[kind as usize].swap(0, Acquire)))
    }

    /// All that were ever counted.
    pub(crate) fn all(&self) -> u64 {
        self.1.load(Relaxed)
    }

    /// Whether the counts are zero since the last [`Lost::take`].
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|count| count.load(Relaxed) == 0)
    }
}
