//! The fast paths: all that nearly every call runs.
//!
//! Nothing in here knows of sampling. A test counts the instructions (`tests/instructions.rs`), and
//! the listing is in docs/fast-path.md.
//!
//! `context` is the address of a [`Heap`], and no two calls run at the same time. The way out to the slow path is an
//! argument, so that each caller has its own.

use crate::geometry::{ALIGNMENT, SMALL_LIMIT};
use crate::heap::Heap;
use crate::page::{Block, Page, Slot};
use core::ffi::c_void;

/// Allocates: takes the first block of the class's list. Ten instructions on x86-64, with two tests.
///
/// `medium` serves sizes above [`SMALL_LIMIT`], `empty` a class whose list is empty.
///
/// # Safety
/// As above.
#[inline(always)]
pub unsafe fn malloc(
    context: *mut c_void,
    size: usize,
    medium: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    empty: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: by the contract above. The class's slot lies at 16·class, the size rounded up.
    unsafe {
        if size > SMALL_LIMIT {
            return medium(context, size);
        }
        let slot: *mut Slot = context
            .byte_add((size + ALIGNMENT - 1) & !(ALIGNMENT - 1))
            .cast();
        let block = (*slot).head;
        if block.is_null() {
            return empty(context, size);
        }
        (*slot).head = (*block).next;
        block.cast()
    }
}

/// Frees: puts the block at the front of the list. Fourteen instructions on x86-64, with two tests.
///
/// `foreign` frees a block that is in no arena, `spent` one whose slot has no budget left. The budget is counted before
/// the block is written to, so that the slow path can still read the contents of a sampled block.
///
/// # Safety
/// As above; the block is null, in use, or the fallback's.
#[inline(always)]
pub unsafe fn free(
    context: *mut c_void,
    block: *mut c_void,
    foreign: unsafe extern "C" fn(*mut c_void, *mut c_void),
    spent: unsafe extern "C" fn(*mut c_void, *mut c_void),
) {
    // SAFETY: by the contract above. A block in an arena has a page, and its page a slot.
    unsafe {
        if !Heap::table(context).holds(block.cast()) {
            return foreign(context, block);
        }
        let block: *mut Block = block.cast();
        let slot = (*Page::of(block)).slot;
        let budget = (*slot).budget - 1;
        (*slot).budget = budget;
        if budget == 0 {
            return spent(context, block.cast());
        }
        (*block).next = (*slot).head;
        (*slot).head = block;
    }
}
