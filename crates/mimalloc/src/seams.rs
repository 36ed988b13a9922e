//! Entry points for tests. A release does not contain them.

use crate::layout::{V3_13, class_of, size_of_queue};
use crate::record;
use crate::verify::{Functions, verify};

pub use crate::fast::{behind, functions};
pub use crate::slow::{large_and_lost, place_of, records, until_sample_of};

/// Verifies the layout with one field changed.
///
/// # Errors
/// What does not agree.
///
/// # Safety
/// As for [`crate::install`].
pub unsafe fn verify_with(
    functions: &Functions,
    field: usize,
    change: isize,
) -> Result<(), &'static str> {
    let mut layout = V3_13;
    let changed = layout
        .fields_mut()
        .into_iter()
        .nth(field)
        .ok_or("no such field")?;
    *changed = changed.wrapping_add_signed(change);
    // SAFETY: by the contract.
    unsafe { verify(functions, &layout) }
}

/// The size of the block that serves a request.
#[must_use]
pub fn block_size(size: usize) -> usize {
    size_of_queue(class_of(size))
}

/// Entries that were displaced, and pages of sampled blocks that were made, by all threads that run.
#[must_use]
pub fn displaced() -> [u64; 2] {
    let mut sums = [0; 2];
    record::for_each(|record| {
        // SAFETY: records are never freed; the totals are atomic.
        let counts = unsafe { &(*record).counts };
        sums[0] += counts.displaced.load(std::sync::atomic::Ordering::Relaxed);
        sums[1] += counts
            .sampled_pages
            .load(std::sync::atomic::Ordering::Relaxed);
    });
    sums
}
