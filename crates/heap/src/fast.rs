//! The fast paths, which almost every call takes.
//!
//! The fast paths contain no sampling code. A test counts their instructions (`tests/instructions.rs`), and
//! docs/fast-path.md has the listing.
//!
//! `context` is the address of a [`Heap`], and no two calls run at the same time. The slow paths are arguments, so
//! that each caller can pass its own.

use crate::geometry::{ALIGNMENT, SMALL_LIMIT};
use crate::heap::Heap;
use crate::page::{Block, Page, Slot};
use core::ffi::c_void;

/// Allocates: takes the first block of the class's list. Ten instructions on x86-64, with two tests.
///
/// `medium` serves sizes above [`SMALL_LIMIT`], `empty` serves a class whose list is empty.
///
/// # Safety
/// As stated for this module.
#[inline(always)]
pub unsafe fn malloc(
    context: *mut c_void,
    size: usize,
    medium: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    empty: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: by the contract of this module.
    unsafe {
        if size > SMALL_LIMIT {
            return medium(context, size);
        }
        small(context, size, empty)
    }
}

/// Allocates at most [`SMALL_LIMIT`] bytes.
///
/// # Safety
/// As stated for this module.
#[inline(always)]
pub unsafe fn small(
    context: *mut c_void,
    size: usize,
    empty: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: by the contract of this module. The class's slot is at 16·class, the size rounded up.
    unsafe {
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
/// `foreign` frees a block that is in no arena, `spent` a block whose slot has no budget left. The budget is counted
/// before the block is written to, so that the slow path can still read the contents of a sampled block.
///
/// # Safety
/// As stated for this module; the block is null, in use, or a block of the fallback.
/// As above; the block is null, in use, or the fallback's.
#[inline(always)]
pub unsafe fn free(
    context: *mut c_void,
    block: *mut c_void,
    foreign: unsafe extern "C" fn(*mut c_void, *mut c_void),
    spent: unsafe extern "C" fn(*mut c_void, *mut c_void),
) {
    // SAFETY: by the contract of this module. A block in an arena has a page, and its page has a
    // slot.
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
