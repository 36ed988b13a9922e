//! Memory for requests during the look-up of the replaced functions: the dynamic linker itself may allocate then.
//!
//! Each block lies in an OS page of its own, in which the filter of sampled blocks counts it. So `free` does not pass it on to
//! the replaced function. Blocks are never freed.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::memory::SMALLEST_PAGE;
use nthbyte_requests::blocks::BLOCKS;

/// A dynamic linker that allocates at each look-up of a name needs some dozens. Unused ones take no memory.
const PAGES: usize = 128;

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; SMALLEST_PAGE * PAGES]>);

// SAFETY: each page is given to one caller.
unsafe impl Sync for Pages {}

static MEMORY: Pages = Pages(UnsafeCell::new([0; SMALLEST_PAGE * PAGES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// A block of zeroes; null if there is no room.
pub fn allocate(size: usize) -> *mut c_void {
    let pages = size.div_ceil(SMALLEST_PAGE).max(1);
    let first = USED.fetch_add(pages.min(PAGES + 1), Relaxed);
    if first.saturating_add(pages) > PAGES {
        return null_mut();
    }
    // SAFETY: the offset is inside of the memory.
    let block = unsafe {
        MEMORY
            .0
            .get()
            .cast::<u8>()
            .add(first * SMALLEST_PAGE)
            .cast()
    };
    BLOCKS.pages.add(block);
    block
}

/// A larger or smaller block with the contents of one from here, which may be null; null if there is no room.
///
/// # Safety
/// The block is null, or was allocated here.
pub unsafe fn resize(block: *mut c_void, size: usize) -> *mut c_void {
    let resized = allocate(size);
    if let Some(readable) = readable(block)
        && !resized.is_null()
    {
        // SAFETY: both have so many bytes. They may overlap only in what lies behind the end of the old block.
        unsafe { block.copy_to(resized, readable.min(size)) };
    }
    resized
}

/// Whether a block was allocated here; then the number of bytes from its start that can be read.
pub fn readable(block: *const c_void) -> Option<usize> {
    let offset = (block as usize).wrapping_sub(MEMORY.0.get() as usize);
    (offset < SMALLEST_PAGE * PAGES).then(|| SMALLEST_PAGE * PAGES - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_searches_for_each_block() {
        for size in [1, SMALLEST_PAGE, 3 * SMALLEST_PAGE] {
            let block = allocate(size);
            assert_eq!(block as usize % SMALLEST_PAGE, 0);
            assert!(BLOCKS.pages.may_have(block));
            assert!(readable(block).is_some_and(|bytes| bytes >= size));
            // SAFETY: the blocks have the sizes that were asked for.
            unsafe {
                block.cast::<u8>().write_bytes(7, size);
                let larger = resize(block, size + 1).cast::<u8>();
                assert!(larger != block.cast() && (0..size).all(|at| larger.add(at).read() == 7));
            }
        }
        assert!(allocate(PAGES * SMALLEST_PAGE).is_null());
    }
}
