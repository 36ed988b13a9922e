//! One allocation of a known type, alone in a function: `tests/instructions.rs` counts its instructions.

use nthbyte_nursery::{MovingHeap, TypeId};

/// Allocates an object of 24 bytes of type 1, and puts an integer into its first slot.
///
/// # Safety
/// As [`MovingHeap::allocate_unrooted`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_nursery_allocate(heap: &mut MovingHeap<()>) -> *mut u64 {
    // SAFETY: the caller's.
    unsafe { heap.allocate_unrooted(TypeId(1), 24) }
}
