//! The slow paths for the heap's own blocks: a list is empty, or the budget of `free` is spent.

use crate::class::{block_size, class_of};
use crate::fast;
use crate::geometry::{BLOCK_SIZES, MEDIUM_LIMIT, SMALL_LIMIT};
use crate::heap::Heap;
use crate::large;
use crate::observer::{BlockDomain, SampledBlock};
use crate::page::{Block, Page, Slot, label_of};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

/// Whether the heap serves a request, and no fallback: its size is within the limit, or it has a class and the heap
/// [trusts](crate::HeapConfig::trusts) the caller.
#[inline(always)]
unsafe fn serves<const OBJECT: bool>(heap: *const Heap, size: usize, site: usize) -> bool {
    // SAFETY: `heap` is a heap; the fields never change. The check may be called at any time.
    unsafe {
        size <= (*heap).limits[BlockDomain::of_objects(OBJECT) as usize]
            || size <= MEDIUM_LIMIT && (*heap).trusts.is_some_and(|trusts| trusts(site))
    }
}

/// A request above [`SMALL_LIMIT`], from this allocation site.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn malloc_medium<const OBJECT: bool>(
    context: *mut c_void,
    size: usize,
    site: usize,
) -> *mut c_void {
    let heap: *mut Heap = context.cast();
    // SAFETY: `context` is a heap. What it serves is at most MEDIUM_LIMIT.
    unsafe {
        if serves::<OBJECT>(heap, size, site) {
            medium::<OBJECT>(heap, size)
        } else {
            large::malloc(heap, size, BlockDomain::of_objects(OBJECT))
        }
    }
}

/// Allocates more than [`SMALL_LIMIT`] and at most [`MEDIUM_LIMIT`] bytes. A table has the class.
#[inline(always)]
unsafe fn medium<const OBJECT: bool>(heap: *mut Heap, size: usize) -> *mut c_void {
    // SAFETY: `heap` is a heap that no other thread uses now, and the size has a class.
    unsafe {
        let class = class_of(size);
        let slot = (&raw mut (*heap).slots).cast::<Slot>().add(class);
        let block = (*slot).head;
        if block.is_null() {
            return allocate(heap, class, size, BlockDomain::of_objects(OBJECT));
        }
        (*slot).head = (*block).next;
        block.cast()
    }
}

/// Like [`fast::malloc`], for calls within this module: the allocation site is known.
#[inline(always)]
unsafe fn malloc<const OBJECT: bool>(
    context: *mut c_void,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: as for `fast::malloc`.
    unsafe {
        if size > SMALL_LIMIT {
            malloc_medium::<OBJECT>(context, size, site)
        } else {
            fast::small(context, size, malloc_empty::<OBJECT>)
        }
    }
}

/// Allocates zeroed memory for `count` elements of `size` bytes.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn calloc<const OBJECT: bool>(
    context: *mut c_void,
    count: usize,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: by the contract of `functions`; a block has at least the requested size.
    unsafe {
        match count.checked_mul(size) {
            Some(bytes) if serves::<OBJECT>(context.cast(), bytes, site) => {
                let block = if bytes > SMALL_LIMIT {
                    medium::<OBJECT>(context.cast(), bytes)
                } else {
                    fast::small(context, bytes, malloc_empty::<OBJECT>)
                };
                if !block.is_null() {
                    block.cast::<u8>().write_bytes(0, bytes);
                }
                block
            }
            Some(bytes) => large::calloc(
                context.cast(),
                count,
                size,
                bytes,
                BlockDomain::of_objects(OBJECT),
            ),
            None => null_mut(),
        }
    }
}

/// The class's list is empty: a sample point was reached, or all blocks are used.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn malloc_empty<const OBJECT: bool>(
    context: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: `context` is a heap.
    unsafe {
        allocate(
            context.cast(),
            class_of(size),
            size,
            BlockDomain::of_objects(OBJECT),
        )
    }
}

/// Allocates a block of a class whose list is empty.
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn allocate(
    heap: *mut Heap,
    class: usize,
    requested: usize,
    domain: BlockDomain,
) -> *mut c_void {
    let table = Heap::table(heap.cast());
    // SAFETY: `heap` is a heap that no other thread uses. The reference ends before the observer runs.
    unsafe {
        if let Some(shared) = (*heap).shared {
            return shared.malloc(requested, domain);
        }
        if !(*heap).remote.load(Ordering::Relaxed).is_null() {
            free_remote_blocks(heap);
        }
        let this = &mut *heap;
        this.settle(class, 0);
        if this.classes[class].until_sample() == 0 {
            return allocate_sampled(heap, class, requested, domain);
        }
        if !this.refill(class, table) {
            return large::malloc(heap, requested, domain);
        }
        let slot = &mut this.slots[class];
        let block = slot.head;
        slot.head = (*block).next;
        block.cast()
    }
}

/// Allocates the block of a settled class that covers the next sample point.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn allocate_sampled(
    heap: *mut Heap,
    class: usize,
    requested: usize,
    domain: BlockDomain,
) -> *mut c_void {
    let table = Heap::table(heap.cast());
    // SAFETY: as in `allocate`. A label precedes a sampled block.
    unsafe {
        let this = &mut *heap;
        let observed = !this.observing && this.observer.is_some();
        let mut block = if observed {
            this.take_sampled(class, table)
        } else {
            null_mut()
        };
        let report = !block.is_null();
        if !report {
            block = this.take_one(class, table);
            if block.is_null() {
                return large::malloc(heap, requested, domain);
            }
            this.lost += 1;
        }
        let Some(points) = &mut this.points else {
            return block.cast(); // not reached: without sample points the countdown never ends
        };
        let size = BLOCK_SIZES[class];
        let state = &mut this.classes[class];
        let covered = state.countdown.advance(u64::from(size), points);
        state.allocations += 1;
        let near = if state.queue.is_null() {
            state.fresh
        } else {
            state.queue
        };
        let near = near.addr();
        this.renew_budget(class);
        if report {
            let sample = SampledBlock {
                block: block.cast(),
                requested,
                block_size: size as usize,
                points: covered,
                domain,
                site: this.site,
                near,
            };
            let token = Heap::report(heap, &sample);
            (*label_of(block)).tag.token = token;
        }
        block.cast()
    }
}

/// Frees a block whose slot has no budget left, as is always the case for sampled blocks. The block has not been
/// written to.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn free_spent(context: *mut c_void, block: *mut c_void) {
    let heap: *mut Heap = context.cast();
    let block: *mut Block = block.cast();
    // SAFETY: `context` is a heap, and `block` is one of its blocks.
    unsafe {
        let page = Page::of(block);
        (*(*page).slot).budget += 1; // nothing was pushed
        if (*page).sampled {
            return free_sampled(heap, block);
        }
        let table = Heap::table(context);
        let this = &mut *heap;
        let class = (*page).class as usize;
        this.rebalance(class, table);
        let slot = &mut this.slots[class];
        if slot.budget > 1 {
            slot.budget -= 1;
            (*block).next = slot.head;
            slot.head = block;
        } else {
            this.return_block(block, table);
        }
    }
}

#[unsafe(link_section = "nthbyte_hot")]
unsafe fn free_sampled(heap: *mut Heap, block: *mut Block) {
    // SAFETY: `block` is a sampled block of this heap, so its label precedes it.
    unsafe {
        Heap::report_freed(heap, block.cast(), block.cast(), (*label_of(block)).tag);
        (*heap).return_block(block, Heap::table(heap.cast()));
    }
}

/// Resizes a block. If the heap does not serve the new size to this caller, the block moves to a fallback, even if it
/// shrinks.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn realloc<const OBJECT: bool>(
    context: *mut c_void,
    block: *mut c_void,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: `context` is a heap, `block` null or in use.
    unsafe {
        if block.is_null() {
            return malloc::<OBJECT>(context, size, site);
        }
        let heap: *mut Heap = context.cast();
        if !Heap::table(context).holds(block.cast()) {
            return large::realloc(heap, block, size, BlockDomain::of_objects(OBJECT));
        }
        let old_size = BLOCK_SIZES[Page::class_of(block.cast())] as usize;
        let shrinks = size <= old_size;
        if shrinks
            && (size > old_size - old_size / 4 || block_size(size) == old_size)
            && serves::<OBJECT>(heap, size, site)
        {
            return block;
        }
        let new = malloc::<OBJECT>(context, size, site);
        if new.is_null() {
            return if shrinks { block } else { new };
        }
        core::ptr::copy_nonoverlapping::<u8>(block.cast(), new.cast(), old_size.min(size));
        fast::free(context, block, large::free_foreign::<OBJECT>, free_spent);
        new
    }
}

/// Frees the blocks that other threads passed to [`Heap::remote_free`].
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn free_remote_blocks(heap: *mut Heap) {
    // SAFETY: a block that is queued here is no longer in use.
    unsafe {
        let mut block = (*heap).remote.swap(null_mut(), Ordering::Acquire);
        while !block.is_null() {
            let next = (*block).next;
            if (*Page::of(block)).sampled {
                free_sampled(heap, block);
            } else {
                (*heap).return_block(block, Heap::table(heap.cast()));
            }
            block = next;
        }
    }
}

impl Heap {
    /// Frees a block of this heap from a thread that does not hold the lock of the heap. The block is queued, and freed
    /// on the next slow path. Its first word is overwritten now, so an observer cannot read it later.
    ///
    /// # Safety
    /// `context` is the address of a heap which [owns](Heap::owns) the block; the block is in use.
    pub unsafe fn remote_free(context: *mut c_void, block: *mut c_void) {
        let block: *mut Block = block.cast();
        // SAFETY: `context` is a heap, `remote` is atomic, and the block belongs to the caller.
        unsafe {
            let remote = &(*Self::state(context.cast())).remote;
            let mut head = remote.load(Ordering::Relaxed);
            loop {
                (*block).next = head;
                match remote.compare_exchange_weak(
                    head,
                    block,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        }
    }
}
