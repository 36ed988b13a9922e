//! Collapses an arena into a huge page, and decides when not to.
//!
//! After a few refusals the kernel is not asked again. A pause follows each slow collapse: a slow collapse means
//! that the kernel must move other pages first, or that a hypervisor must find memory.

use super::header::{Arena, Backing};
use crate::geometry::ARENA_SIZE;
use crate::os;
use core::ops::Range;

/// After this many refusals the kernel is not asked again: each time it searches for a huge page
/// without success.
const MAX_REFUSALS: u32 = 3;
/// CPU time of a collapse when a huge page is available, in nanoseconds.
const EXPECTED_NANOS: u64 = 1_000_000;
/// A pause follows a collapse that takes longer. Its length is the extra time multiplied by this, in CPU time
/// of the process.
const PAUSE_FACTOR: u64 = 100;
/// In a pause, the clock is read for every 16th page that is taken from an arena: it takes a system call.
const PAGES_UNREAD: u32 = 15;

/// The results of earlier collapses.
pub struct Collapses {
    pub(super) refusals_left: u32,
    /// No arena is collapsed while the process's CPU time, in nanoseconds, is in this range. (The CPU time of a forked
    /// child starts at 0, so a child may have one unnecessary pause.)
    pub(super) pause: Range<u64>,
    /// Number of pages for which the clock need not be read: the pause goes on.
    unread: u32,
}

impl Collapses {
    /// No collapse yet.
    pub const fn new() -> Self {
        Self {
            refusals_left: MAX_REFUSALS,
            pause: 0..0,
            unread: 0,
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

    /// The same, for a caller that asks at each page. May notice the end of a pause some pages late.
    pub fn are_paused_at_page(&mut self) -> bool {
        if self.unread > 0 {
            self.unread -= 1;
            return true;
        }
        let are_paused = self.are_paused();
        self.unread = if are_paused { PAGES_UNREAD } else { 0 };
        are_paused
    }

    /// Collapses an arena, if the kernel does not refuse. The arena counts as huge in both cases.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_noticed_at_once_and_its_end_after_some_pages() {
        let mut collapses = Collapses::new();
        assert!(!collapses.are_paused_at_page());
        collapses.pause = 0..u64::MAX;
        assert!(collapses.are_paused_at_page());
        // It has ended: the process has used some time.
        collapses.pause = 0..1;
        let late = (0..100).take_while(|_| collapses.are_paused_at_page());
        assert_eq!(late.count(), PAGES_UNREAD as usize);
    }
}
