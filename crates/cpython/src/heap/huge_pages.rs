//! Huge pages for memory of the heap that is in use already: a program that runs for a while gets faster by them, and
//! no larger.

use std::ffi::c_void;

use nthbyte_heap::Heap;
use nthbyte_profile::event::Nanos;

/// The time between two that are made, each of which takes the better part of a millisecond.
const PAUSE: Nanos = Nanos(50_000_000);
/// The time until it is tried again when there was nothing to make one of, or it was not the time for it.
const LONGER: Nanos = Nanos(400_000_000);
/// Says whether the administrator allows transparent huge pages. The kernel would not ask.
const ALLOWED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Whether the administrator forbids transparent huge pages.
pub fn are_forbidden() -> bool {
    std::fs::read_to_string(ALLOWED).is_ok_and(|text| text.contains("[never]"))
}

/// When the next one is due.
#[derive(Default)]
pub struct HugePages {
    due: Option<Nanos>,
}

impl HugePages {
    /// Begins to wait anew; times are of another session.
    pub const fn reset(&mut self) {
        self.due = None;
    }

    /// Makes one if it is time and there is something to make it of.
    ///
    /// # Safety
    /// `heap` is the context of a heap that nobody else is using now.
    pub unsafe fn attend(&mut self, now: Nanos, heap: *mut c_void) {
        let made = match self.due {
            Some(due) if now.0 < due.0 => return,
            // SAFETY: by the contract.
            Some(_) => unsafe { Heap::join_pages(heap.cast()) },
            None => true,
        };
        let wait = if made { PAUSE } else { LONGER };
        self.due = Some(Nanos(now.0.saturating_add(wait.0)));
    }
}
