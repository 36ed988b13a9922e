//! What the heap does at intervals: collapses memory into huge pages, and gives back memory that is not used again.
//!
//! The heap has no thread of its own, and only the holder of the GIL may use it. So this runs when a sample is taken.

use std::ffi::c_void;

use nthbyte_heap::Heap;
use nthbyte_profile::event::Nanos;

/// The time between two collapses. Each takes about a millisecond, and makes a long-running program faster without more
/// memory.
const COLLAPSE_PAUSE: Nanos = Nanos(50_000_000);
/// The time until the next try, if there was nothing to collapse.
const LONG_COLLAPSE_PAUSE: Nanos = Nanos(400_000_000);
/// Free memory that is not used again has this half-life.
const HALF_LIFE: Nanos = Nanos(1_000_000_000);

/// The times of the next steps.
#[derive(Default)]
pub struct Upkeep {
    collapse: Due,
    decay: Due,
}

/// A time of the session; `None` before the first interval begins.
#[derive(Default)]
struct Due(Option<Nanos>);

impl Due {
    /// Whether the time has come. The first call begins an interval.
    fn has_come(&mut self, now: Nanos, interval: Nanos) -> bool {
        match self.0 {
            Some(due) if now.0 < due.0 => false,
            before => {
                self.after(now, interval);
                before.is_some()
            }
        }
    }

    fn after(&mut self, now: Nanos, interval: Nanos) {
        self.0 = Some(Nanos(now.0.saturating_add(interval.0)));
    }
}

impl Upkeep {
    /// Starts again, because the times of a new session have another origin.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Does the work that is due.
    ///
    /// # Safety
    /// `heap` is the context of a heap that no other thread uses now.
    pub unsafe fn run(&mut self, now: Nanos, heap: *mut c_void) {
        let heap: *mut Heap = heap.cast();
        // SAFETY: by the contract.
        unsafe {
            if self.collapse.has_come(now, COLLAPSE_PAUSE) && !Heap::collapse(heap) {
                self.collapse.after(now, LONG_COLLAPSE_PAUSE);
            }
            if self.decay.has_come(now, HALF_LIFE) {
                Heap::decay(heap);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_once_an_interval() {
        let mut due = Due::default();
        let came: Vec<u64> = (0..100)
            .filter(|&now| due.has_come(Nanos(now), Nanos(30)))
            .collect();
        assert_eq!(came, [30, 60, 90]);
    }
}
