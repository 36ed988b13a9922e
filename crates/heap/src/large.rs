//! Requests that the fallbacks serve: those above the heap's limit, and those for the fallbacks' own blocks.
//!
//! Each such request is counted immediately, in a stream of bytes with its own countdown (section 3.4 of "Low Overhead
//! Allocation Sampling in a Garbage Collected Virtual Machine"; its footnotes 10 and 11 are about a block that covers
//! several sample points).
//!
//! With a check for the lock ([`HeapConfig::holds_lock`](crate::HeapConfig::holds_lock)), a caller without the lock uses only
//! what never changes (the fallbacks, the limits, and the entry of the arena table for a block that is in use), and what
//! is atomic: the countdown and the filter of sampled blocks. So the lock is checked only where there may be a sample.

use crate::addresses::Sampled;
use crate::arena::SMALLEST_DEMAND;
use crate::config::HugePages;
use crate::geometry::SMALLEST_OS_PAGE;
use crate::heap::Heap;
use crate::observer::{BlockDomain, NOT_INTERESTED, SampledBlock};
use crate::os;
use crate::page::Tag;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use nthbyte_sampling::{Countdown, Weight};

/// Blocks of this size or more get huge pages: glibc makes a new mapping for each of them
/// (`DEFAULT_MMAP_THRESHOLD_MAX`), so all their memory is allocated by page faults, and the advice ends with the block
/// (docs/fast-path.md).
const HUGE_FROM: usize = 32 << 20;
/// Before the advice, the OS page at this offset and the last OS page get ordinary memory, so that the first 2 MiB and
/// the end cannot become huge pages. A program may pass megabytes to `read` and get a few kilobytes (from a pipe never
/// more than 1 MiB), and CPython writes a zero to the end of `bytes` immediately.
const READ_LIMIT: usize = 1 << 20;

/// Allocates a block of a fallback. Most requests need nothing of the heap but to be counted.
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn malloc(heap: *mut Heap, size: usize, domain: BlockDomain) -> *mut c_void {
    // SAFETY: `heap` is a heap; the embedder guarantees that its fallbacks work.
    unsafe {
        if size >= SMALLEST_DEMAND || (*heap).shared.is_some() {
            return malloc_slowly(heap, size, domain);
        }
        let fallback = (*heap).fallback(domain);
        let block = (fallback.malloc)(fallback.context, size);
        account(heap, block, size, domain)
    }
}

/// Allocates a large block, or in a shared heap.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn malloc_slowly(heap: *mut Heap, size: usize, domain: BlockDomain) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.malloc(size, domain);
        }
        make_room(heap, size);
        let fallback = (*heap).fallback(domain);
        let block = (fallback.malloc)(fallback.context, size);
        if wants_huge_pages(heap, block, size) && is_locked(heap) {
            block.byte_add(READ_LIMIT).cast::<u8>().write(0);
            block.byte_add(size - 1).cast::<u8>().write(0);
            advise_huge(heap, block, size);
        }
        account(heap, block, size, domain)
    }
}

/// Like `malloc`, but without huge pages: a program may touch little of a large block of zeroes.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn calloc(
    heap: *mut Heap,
    count: usize,
    size: usize,
    bytes: usize,
    domain: BlockDomain,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.calloc(count, size, domain);
        }
        make_room(heap, bytes);
        let fallback = (*heap).fallback(domain);
        let block = (fallback.calloc)(fallback.context, count, size);
        account(heap, block, bytes, domain)
    }
}

/// Resizes a block of a fallback. The block stays with the fallback: its old size is not known, so it cannot be
/// copied. The result counts as a new allocation of the whole size.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn realloc(
    heap: *mut Heap,
    block: *mut c_void,
    size: usize,
    domain: BlockDomain,
) -> *mut c_void {
    // SAFETY: as in `malloc`; the block belongs to the fallback.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.realloc(block, size, domain);
        }
        let fallback = (*heap).fallback(domain);
        let new = (fallback.realloc)(fallback.context, block, size);
        if new.is_null() {
            return new;
        }
        if (*heap).large_filter.may_hold(block.addr())
            && is_locked(heap)
            && let Some(sampled) = remove(heap, block)
        {
            Heap::report_freed(heap, block, new, sampled.tag);
        }
        // The advice remains for a block that grows, which may happen one byte at a time.
        if wants_huge_pages(heap, new, size) && is_locked(heap) && (*heap).advised != new.addr() {
            advise_huge(heap, new, size);
        }
        account(heap, new, size, domain)
    }
}

/// Frees a block that is not in an arena, or null.
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn free_foreign<const OBJECT: bool>(
    context: *mut c_void,
    block: *mut c_void,
) {
    if block.is_null() {
        return;
    }
    let heap: *mut Heap = context.cast();
    // SAFETY: `context` is a heap; the block belongs to the fallback.
    unsafe {
        let domain = BlockDomain::of_objects(OBJECT);
        if (*heap).shared.is_some() || (*heap).large_filter.may_hold(block.addr()) {
            return free_slowly(heap, block, domain);
        }
        let fallback = (*heap).fallback(domain);
        (fallback.free)(fallback.context, block);
    }
}

/// Frees a block that may be sampled, or in a shared heap.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn free_slowly(heap: *mut Heap, block: *mut c_void, domain: BlockDomain) {
    // SAFETY: as in `free_foreign`.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.free(block, domain);
        }
        if is_locked(heap)
            && let Some(sampled) = remove(heap, block)
        {
            Heap::report_freed(heap, block, block, sampled.tag);
        }
        let fallback = (*heap).fallback(domain);
        (fallback.free)(fallback.context, block);
    }
}

/// Gives free memory of the heap back before a fallback takes as much for a large block. Not for a block that grows:
/// its old size is not known, and a list grows by an eighth at a time.
#[inline(always)]
unsafe fn make_room(heap: *mut Heap, size: usize) {
    // SAFETY: `heap` is a heap that no other thread uses, if the caller has the lock.
    unsafe {
        if size >= SMALLEST_DEMAND && is_locked(heap) {
            (*heap).arenas.purge_for(size, Heap::table(heap.cast()));
        }
    }
}

/// Whether the caller may read and change the heap's state.
#[inline]
unsafe fn is_locked(heap: *const Heap) -> bool {
    // SAFETY: `heap` is a heap; the field never changes. The check may be called at any time.
    unsafe { (*heap).holds_lock.is_none_or(|holds_lock| holds_lock()) }
}

/// Whether a block of a fallback gets huge pages. It does not if OS pages are larger than usual: then huge pages are
/// larger too and waste too much memory.
unsafe fn wants_huge_pages(heap: *const Heap, block: *mut c_void, size: usize) -> bool {
    // SAFETY: `heap` is a heap.
    let huge_pages = unsafe { (*heap).arenas.huge_pages };
    size >= HUGE_FROM
        && !block.is_null()
        && huge_pages != HugePages::Off
        && os::page_size() == SMALLEST_OS_PAGE
}

/// Requests huge pages for the whole mapping of a block. If the advice covered only a part, the kernel would split the
/// mapping, and `mremap` could not move it any more.
unsafe fn advise_huge(heap: *mut Heap, block: *mut c_void, size: usize) {
    // glibc rounds up the size plus the word before the block to a multiple of 16, and maps one more
    // word.
    let mapped = (size + 8).next_multiple_of(16) - 8;
    // SAFETY: `heap` is a heap; the block is in use.
    unsafe {
        (*heap).advised = block.addr();
        os::advise_huge_around(block.cast(), mapped);
    }
}

/// Counts a request of a fallback. Returns whether it covers no sample point.
#[inline(always)]
unsafe fn passes(heap: *const Heap, size: usize) -> bool {
    // SAFETY: `heap` is a heap; the fields are atomic. Only the thread with the lock writes, apart from requests without
    // it: then the bytes of one of the two may not be counted.
    unsafe {
        let (until_sample, bytes) = (&(*heap).large_until_sample, &(*heap).large_bytes);
        bytes.store(bytes.load(Relaxed).wrapping_add(size as u64), Relaxed);
        let left = until_sample.load(Relaxed);
        if size as u64 >= left {
            return false;
        }
        until_sample.store(left - size as u64, Relaxed);
        true
    }
}

/// Counts a block of a fallback, reports it if it covers a sample point, and returns it.
#[inline(always)]
unsafe fn account(
    heap: *mut Heap,
    block: *mut c_void,
    size: usize,
    domain: BlockDomain,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    unsafe {
        if passes(heap, size) {
            return block;
        }
        cover(heap, block, size, domain)
    }
}

/// Reports a block of a fallback that covers a sample point, and returns it. Without the lock it stays unreported, and the
/// next request with the lock covers the point.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn cover(
    heap: *mut Heap,
    block: *mut c_void,
    size: usize,
    domain: BlockDomain,
) -> *mut c_void {
    // SAFETY: `heap` is a heap that no other thread changes, if the caller has the lock. The reference ends before the
    // observer runs.
    unsafe {
        if block.is_null() {
            // There may be no memory for any size. Requests that are small enough to end before the point do not come here.
            let bytes = &(*heap).large_bytes;
            bytes.store(bytes.load(Relaxed).wrapping_sub(size as u64), Relaxed);
            return block;
        }
        if !is_locked(heap) {
            return block;
        }
        let this = &mut *heap;
        let Some(points) = &mut this.points else {
            return block;
        };
        let until_sample = &this.large_until_sample;
        let mut countdown = Countdown::of_bytes(until_sample.load(Relaxed));
        let covered = countdown.advance(size as u64, points);
        until_sample.store(countdown.bytes_until_sample(), Relaxed);
        if covered == 0 {
            return block;
        }
        if this.observing || this.observer.is_none() || !this.large_sampled.reserve() {
            this.lost += 1;
            return block;
        }
        let session = this.session;
        let (distances, period) = (points.distances(), points.period().bytes());
        let stands_for = Weight::of(distances, period, size as u64, size as u64, covered);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a weight is positive
        let stands_for = stands_for.bytes as u64;
        let sample = SampledBlock {
            block,
            requested: size,
            block_size: size,
            points: covered,
            domain,
            site: this.site,
            near: 0,
        };
        let token = Heap::report(heap, &sample);
        if token != NOT_INTERESTED {
            // The address is still in the set if the block was freed without a call of the heap.
            remove(heap, block);
            let tag = Tag { token, session };
            let sampled = Sampled { tag, stands_for };
            (*heap).large_sampled.insert(block.addr(), sampled);
            (*heap).large_filter.insert(block.addr());
            (*heap).large_in_use += stands_for;
        }
        block
    }
}

/// Removes a block from the set of sampled blocks, and what it stands for from the total.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn remove(heap: *mut Heap, block: *mut c_void) -> Option<Sampled> {
    // SAFETY: `heap` is a heap that no other thread uses.
    unsafe {
        let sampled = (*heap).large_sampled.remove(block.addr())?;
        (*heap).large_filter.remove(block.addr());
        (*heap).large_in_use -= sampled.stands_for;
        Some(sampled)
    }
}
