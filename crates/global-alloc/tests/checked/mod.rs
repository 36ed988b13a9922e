//! An allocator that ends the process if a block comes back with another layout than it was asked for.

use std::alloc::{GlobalAlloc, Layout, System};

/// Before each block is what it was asked for.
#[derive(Clone, Copy)]
struct Header {
    size: usize,
    align: usize,
    check: usize,
}

const HEADER: usize = 32;
const CHECK: usize = 0x5eed_0f0a;

/// The system's allocator, with a check.
pub struct Checked;

fn outer(layout: Layout) -> (Layout, usize) {
    let before = HEADER.max(layout.align());
    let whole = Layout::from_size_align(layout.size() + before, layout.align().max(16));
    (whole.unwrap_or(layout), before)
}

/// Writes a line without allocating, and ends the process.
fn fail(problem: &str) -> ! {
    // SAFETY: the pointer and the length are the text's.
    unsafe {
        libc::write(2, problem.as_ptr().cast(), problem.len());
        libc::abort()
    }
}

// SAFETY: a block is part of one of the system's, aligned as it must be.
unsafe impl GlobalAlloc for Checked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (whole, before) = outer(layout);
        // SAFETY: the size is not zero; the header lies before the block.
        unsafe {
            let start = System.alloc(whole);
            if start.is_null() {
                return start;
            }
            let block = start.add(before);
            let header = Header {
                size: layout.size(),
                align: layout.align(),
                check: CHECK ^ block as usize,
            };
            block.sub(HEADER).cast::<Header>().write(header);
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the header lies before the block, if it is one of this allocator.
        unsafe {
            let place = block.sub(HEADER).cast::<Header>();
            let header = place.read();
            if header.check != CHECK ^ block as usize {
                fail("a block that is not in use is freed\n");
            }
            if (header.size, header.align) != (layout.size(), layout.align()) {
                fail("a block is freed with another layout than it was asked for\n");
            }
            (*place).check = 0;
            let (whole, before) = outer(layout);
            System.dealloc(block.sub(before), whole);
        }
    }
}
