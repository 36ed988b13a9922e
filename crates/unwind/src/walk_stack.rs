//! The stack that walks run on.
//!
//! For an address that no walk has met, gimli reads the rules of its function, and copies the row of all registers' rules
//! (6 KiB) twice. A thread of the program may have 16 KiB in all, and a coroutine less. So the program's stack is read, but
//! not used.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Four times what a walk was seen to use, so that a signal handler finds room, too.
const SIZE: usize = 64 << 10;

/// Memory for the stack of one walk at a time, aligned as any processor wants it. It is zeroes until it is used.
pub(crate) struct WalkStack(Box<[u128]>);

impl Default for WalkStack {
    fn default() -> Self {
        Self(vec![0; SIZE / size_of::<u128>()].into())
    }
}

impl WalkStack {
    /// The start of the memory.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Does some work on another stack. A panic in it goes on in the caller.
///
/// # Safety
/// `start` is a [`WalkStack`]'s, which nobody uses meanwhile.
pub(crate) unsafe fn on<T>(start: *mut u8, work: impl FnOnce() -> T) -> T {
    let work = AssertUnwindSafe(work);
    // SAFETY: the memory has this size and is aligned, and no panic leaves the function that runs on it.
    let result = unsafe { psm::on_stack(start, SIZE, || catch_unwind(work)) };
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_the_other_stack() {
        let mut stack = WalkStack::default();
        let memory = stack.0.as_ptr_range();
        let (start, end) = (memory.start as usize, memory.end as usize);
        let mut here = 0_usize;
        // SAFETY: nobody else uses it.
        let sum = unsafe {
            on(stack.start(), || {
                let place = std::hint::black_box([1_u64; 100]);
                here = place.as_ptr() as usize;
                place.iter().sum::<u64>()
            })
        };
        assert_eq!(sum, 100);
        assert!((start..end).contains(&here));
    }

    #[test]
    fn a_panic_goes_on_in_the_caller() {
        let mut stack = WalkStack::default();
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: as above.
            unsafe { on(stack.start(), || std::panic::panic_any(7)) }
        }));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&7));
    }
}
