//! Collapsing an arena into a huge page, and when not to.
//!
//! The kernel is not asked again after it has refused a few times. And there is a pause after a collapse that was
//! slow: the kernel then has to move other pages first, or a hypervisor has to find memory.

use super::header::{Arena, Backing};
use crate::geometry::ARENA_SIZE;
use crate::os;
use core::ops::Range;

/// After this many refusals the kernel is not asked again: each time it looks for a huge page in vain.
const MAX_REFUSALS: u32 = 3;
/// CPU time of a collapse where a huge page is available, in nanoseconds.
const EXPECTED_NANOS: u64 = 1_000_000;
/// A collapse that takes longer is followed by a pause: the extra time, times this, of the process's CPU time.
const PAUSE_FACTOR: u64 = 100;

/// What is known of earlier collapses.
pub struct Collapses {
    refusals_left: u32,
    /// No arena is collapsed while the process's CPU time, in nanoseconds, lies in this range. (A forked child's CPU time
    /// begins at 0; so it may see one pause that it does not need.)
    pause: Range<u64>,
}

impl Collapses {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            refusals_left: MAX_REFUSALS,
            pause: 0..0,
        }
    }

    /// Whether the kernel has refused less often than [`MAX_REFUSALS`].
    pub const fn are_possible(&self) -> bool {
        self.refusals_left > 0
    }

    /// Whether the last collapse was slow and not long ago.
    pub fn are_paused(&self) -> bool {
        !self.pause.is_empty() && self.pause.contains(&os::process_nanos())
    }

    /// Collapses an arena, if the kernel does not refuse. It counts as huge either way.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    pub unsafe fn collapse(&mut self, arena: *mut Arena) {
        let start = os::thread_nanos();
        // SAFETY: by the caller.
        let is_collapsed = unsafe {
            (*arena).backing = Backing::Huge;
            os::collapse(Arena::base(arena), ARENA_SIZE)
        };
        if !is_collapsed {
            self.refusals_left = self.refusals_left.saturating_sub(1);
            return;
        }
        let extra = os::thread_nanos()
            .saturating_sub(start)
            .saturating_sub(EXPECTED_NANOS);
        let now = os::process_nanos();
        self.pause = now..now.saturating_add(extra.saturating_mul(PAUSE_FACTOR));
    }
}
