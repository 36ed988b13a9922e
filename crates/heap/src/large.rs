//! What the fallbacks serve: requests above the heap's limit, and blocks that they made.
//!
//! Such a request is accounted for on the spot, by the sample points of one stream of its own
//! (section 3.4 of the paper; a block that covers several points is footnotes 10 and 11).

use crate::heap::Heap;
use crate::observer::{Domain, NOT_INTERESTED, Sample};
use crate::os::{self, HugePages};
use crate::page::Tag;
use core::ffi::c_void;

/// From this size on a block is given huge pages: glibc maps every such block anew (`DEFAULT_MMAP_THRESHOLD_MAX`), so that all
/// its memory comes by faults, and what was advised ends with the block (docs/fast-path.md).
const HUGE_FROM: usize = 32 << 20;
/// But first this place in it, and its end, get ordinary memory, where no huge page can come then: a program may offer megabytes
/// to `read` and get a few kilobytes, from a pipe never more than so many; and `bytes` end with a zero from the start.
const READ: usize = 1 << 20;

#[cold]
#[inline(never)]
pub unsafe fn malloc(heap: *mut Heap, size: usize, domain: Domain) -> *mut c_void {
    // SAFETY: `heap` is a heap; the embedder vouches for its fallbacks.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.malloc(size, domain);
        }
        let fallback = (*heap).fallback(domain);
        let block = (fallback.malloc)(fallback.context, size);
        if wants_huge_pages(heap, block, size) {
            block.byte_add(READ).cast::<u8>().write(0);
            block.byte_add(size - 1).cast::<u8>().write(0);
            advise_huge(heap, block, size);
        }
        account(heap, block, size, domain)
    }
}

/// Zeroes get no huge pages: a program may touch little of them.
#[cold]
#[inline(never)]
pub unsafe fn calloc(
    heap: *mut Heap,
    count: usize,
    size: usize,
    bytes: usize,
    domain: Domain,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.calloc(count, size, domain);
        }
        let fallback = (*heap).fallback(domain);
        let block = (fallback.calloc)(fallback.context, count, size);
        account(heap, block, bytes, domain)
    }
}

/// Resizes a block of a fallback. It stays one, as its old size, and so what could be copied, is not known.
/// What has grown or shrunk counts as a new allocation of its whole size.
#[cold]
#[inline(never)]
pub unsafe fn realloc(
    heap: *mut Heap,
    block: *mut c_void,
    size: usize,
    domain: Domain,
) -> *mut c_void {
    // SAFETY: as in `malloc`; the block is one of the fallback's.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.realloc(block, size, domain);
        }
        let fallback = (*heap).fallback(domain);
        let new = (fallback.realloc)(fallback.context, block, size);
        if new.is_null() {
            return new;
        }
        if let Some(tag) = (*heap).large_sampled.remove(block.addr()) {
            Heap::report_freed(heap, new, tag);
        }
        // One that was advised stays so while it grows, a byte at a time perhaps.
        if wants_huge_pages(heap, new, size) && (*heap).advised != new.addr() {
            advise_huge(heap, new, size);
        }
        account(heap, new, size, domain)
    }
}

/// Frees a block that is not in an arena, or null.
#[inline(never)]
pub unsafe extern "C" fn free_foreign<const OBJECT: bool>(
    context: *mut c_void,
    block: *mut c_void,
) {
    if block.is_null() {
        return;
    }
    let heap: *mut Heap = context.cast();
    // SAFETY: `context` is a heap; the block is one of the fallback's.
    unsafe {
        let domain = if OBJECT {
            Domain::Object
        } else {
            Domain::Memory
        };
        if let Some(shared) = (*heap).shared {
            return shared.free(block, domain);
        }
        if let Some(tag) = (*heap).large_sampled.remove(block.addr()) {
            Heap::report_freed(heap, block, tag);
        }
        let fallback = (*heap).fallback(domain);
        (fallback.free)(fallback.context, block);
    }
}

/// Whether a block of a fallback shall have huge pages. Larger OS pages have larger huge pages, which waste too much.
unsafe fn wants_huge_pages(heap: *const Heap, block: *mut c_void, size: usize) -> bool {
    // SAFETY: `heap` is a heap.
    let huge_pages = unsafe { (*heap).arenas.huge_pages };
    size >= HUGE_FROM
        && !block.is_null()
        && huge_pages != HugePages::Off
        && os::page_size() == os::SMALLEST_PAGE
}

/// Asks for huge pages in the whole mapping of a block, which could not be moved any more (`mremap`) if it were cut in two.
unsafe fn advise_huge(heap: *mut Heap, block: *mut c_void, size: usize) {
    // glibc makes the size and a word before the block a multiple of 16, and maps one word more.
    let mapped = (size + 8).next_multiple_of(16) - 8;
    // SAFETY: `heap` is a heap; the block is in use.
    unsafe {
        (*heap).advised = block.addr();
        os::advise_huge_around(block.cast(), mapped);
    }
}

/// Counts a block of a fallback, reports it if it covers a sample point, and returns it.
unsafe fn account(heap: *mut Heap, block: *mut c_void, size: usize, domain: Domain) -> *mut c_void {
    if block.is_null() {
        return block;
    }
    // SAFETY: `heap` is a heap, and nobody else is in it. The reference ends before the observer runs.
    unsafe {
        let this = &mut *heap;
        this.large_bytes += size as u64;
        let Some(points) = &mut this.points else {
            return block;
        };
        let covered = this.large_countdown.advance(size as u64, points);
        if covered == 0 {
            return block;
        }
        if this.observing || this.observer.is_none() || !this.large_sampled.reserve() {
            this.lost += 1;
            return block;
        }
        let session = this.session;
        let sample = Sample {
            block,
            requested: size,
            block_size: size,
            points: covered,
            domain,
            caller: this.caller,
        };
        let token = Heap::report(heap, &sample);
        if token != NOT_INTERESTED {
            // The address is still there if the block was freed behind the heap's back.
            (*heap).large_sampled.remove(block.addr());
            (*heap)
                .large_sampled
                .insert(block.addr(), Tag { token, session });
        }
        block
    }
}
