//! A request at a sample point, and a block that may be sampled.
//!
//! nthbyte's frames lie in the same program as all others. So each function here that records a sample is not inlined,
//! and says where its own part of the stack is: the stack of the sample begins above it. Arguments have the order of the
//! compiler's functions (`__rust_alloc`), so that the fast path need not move them.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

use nthbyte_host::{keep_errno, probes};
use nthbyte_requests::blocks::{BLOCKS, BlockEntry};
use nthbyte_requests::{ThreadState, sampler};
use nthbyte_sampling::{Distances, Weight};
use nthbyte_session::native::{self, NOT_INTERESTED};

use super::marks;
use super::thread::{self, unobserved};

/// The function that the program called, for a new block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Alloc,
    AllocZeroed,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::AllocZeroed => "alloc_zeroed",
        }
    }

    /// # Safety
    /// As for the functions of [`GlobalAlloc`].
    unsafe fn call<A: GlobalAlloc>(self, inner: &A, layout: Layout) -> *mut u8 {
        // SAFETY: by the contract.
        unsafe {
            match self {
                Self::Alloc => inner.alloc(layout),
                Self::AllocZeroed => inner.alloc_zeroed(layout),
            }
        }
    }
}

/// `alloc` and `alloc_zeroed` of a request that was subtracted from the countdown.
///
/// # Safety
/// As for these.
#[cold]
#[inline(never)]
pub(super) unsafe fn alloc<A: GlobalAlloc>(
    size: usize,
    align: usize,
    way: Way,
    inner: &A,
) -> *mut u8 {
    // SAFETY: they come from a layout.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    let thread = thread::current();
    // SAFETY: the calling thread's state; by the contract.
    unsafe {
        let points = sampler::points(thread, layout.size());
        if points > 0
            && let Some((block, place)) = new_block(inner, layout, way)
        {
            record(thread, block, place, layout.size(), points, way.name());
            return block;
        }
        way.call(inner, layout)
    }
}

/// A block in which its free recognises a sampled one, and its place in the table. `None` if there is no memory for both.
unsafe fn new_block<A: GlobalAlloc>(
    inner: &A,
    layout: Layout,
    way: Way,
) -> Option<(*mut u8, BlockEntry<'static>)> {
    let (asked, detail) = marks::of_sample(layout)?;
    // SAFETY: the size is not smaller than the program's request, and the block was never used.
    unsafe {
        let block = way.call(inner, asked);
        if block.is_null() {
            return None;
        }
        if let Some(place) = insert(block, detail) {
            return Some((block, place));
        }
        inner.dealloc(block, asked);
    }
    native::lost();
    None
}

fn insert(block: *mut u8, detail: usize) -> Option<BlockEntry<'static>> {
    // An earlier block at this address was freed by other means.
    if let Some(stale) = BLOCKS.remove(block.cast()) {
        report_freed(block, stale.token);
    }
    BLOCKS.insert(block.cast(), NOT_INTERESTED, detail)
}

/// `dealloc` of a block that may be sampled.
///
/// # Safety
/// As for `dealloc`.
#[cold]
#[inline(never)]
pub(super) unsafe fn dealloc<A: GlobalAlloc>(block: *mut u8, size: usize, align: usize, inner: &A) {
    // SAFETY: they come from a layout; by the contract.
    unsafe { give_back(block, Layout::from_size_align_unchecked(size, align), inner) };
}

/// # Safety
/// As for `dealloc`.
unsafe fn give_back<A: GlobalAlloc>(block: *mut u8, layout: Layout, inner: &A) {
    let found = BLOCKS.remove(block.cast());
    if let Some(found) = found {
        report_freed(block, found.token);
    }
    // SAFETY: by the contract, with the layout that the inner allocator knows.
    unsafe { inner.dealloc(block, marks::asked(found, layout)) };
}

/// `realloc` of a request that was subtracted from the countdown. At a sample point, the result counts as a new allocation
/// of the whole size.
///
/// # Safety
/// As for `realloc`.
#[cold]
#[inline(never)]
pub(super) unsafe fn realloc_due<A: GlobalAlloc>(
    block: *mut u8,
    size: usize,
    align: usize,
    new_size: usize,
    inner: &A,
) -> *mut u8 {
    let thread = thread::current();
    // SAFETY: the calling thread's state; sizes and alignment are valid, by the contract.
    unsafe {
        let layout = Layout::from_size_align_unchecked(size, align);
        let points = sampler::points(thread, new_size);
        let (resized, place) = resize(inner, block, layout, new_size, points > 0);
        if let Some(place) = place {
            record(thread, resized, place, new_size, points, "realloc");
        }
        resized
    }
}

/// `realloc`, without a sample point, of a block that may be sampled: such a block counts as freed.
///
/// # Safety
/// As for `realloc`.
#[cold]
#[inline(never)]
pub(super) unsafe fn realloc<A: GlobalAlloc>(
    block: *mut u8,
    size: usize,
    align: usize,
    new_size: usize,
    inner: &A,
) -> *mut u8 {
    // SAFETY: sizes and alignment are valid, by the contract.
    unsafe {
        let layout = Layout::from_size_align_unchecked(size, align);
        resize(inner, block, layout, new_size, false).0
    }
}

/// Resizes a block; null if there is no memory. If the request is sampled and there is room in the table, the result has a
/// place in it.
///
/// # Safety
/// As for `realloc`.
unsafe fn resize<A: GlobalAlloc>(
    inner: &A,
    block: *mut u8,
    layout: Layout,
    new_size: usize,
    is_sampled: bool,
) -> (*mut u8, Option<BlockEntry<'static>>) {
    // SAFETY: by the contract.
    let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
    let found = BLOCKS.find(block.cast());
    let is_marked = |found| marks::is_marked(found);
    let wanted = is_sampled.then(|| marks::of_sample(new)).flatten();
    // SAFETY: by the contract.
    unsafe {
        // A block gets or loses its mark, so it moves.
        if found.is_some_and(is_marked) || wanted.is_some_and(|(asked, _)| asked != new) {
            let sampled = is_sampled
                .then(|| new_block(inner, new, Way::Alloc))
                .flatten();
            let (moved, place) = match sampled {
                Some((moved, place)) => (moved, Some(place)),
                None => (inner.alloc(new), None),
            };
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(new.size()));
                give_back(block, layout, inner);
            }
            return (moved, place);
        }
        // Before the call: after it, another thread may get the same address.
        let removed = BLOCKS.remove(block.cast());
        let resized = inner.realloc(block, layout, new.size());
        if resized.is_null() {
            if let Some(removed) = removed {
                BLOCKS.insert(block.cast(), removed.token, removed.detail);
            }
            return (resized, None);
        }
        if let Some(removed) = removed {
            report_freed(block, removed.token);
        }
        let place = wanted.and_then(|(_, detail)| {
            let place = insert(resized, detail);
            if place.is_none() {
                native::lost();
            }
            place
        });
        (resized, place)
    }
}

/// Records a sample, and remembers its token for the free. Inlined, so that `frame` lies in the caller's part of the stack.
///
/// # Safety
/// `thread` is the calling thread's state, and [`sampler::points`] has just found points. The caller is not inlined.
#[inline(always)]
unsafe fn record(
    thread: *mut ThreadState,
    block: *mut u8,
    place: BlockEntry<'_>,
    size: usize,
    points: u32,
    function: &'static str,
) {
    let frame = black_box(0_u8);
    let inside = &raw const frame as usize;
    keep_errno(|| {
        unobserved(|| {
            let request = native::SampledRequest {
                size: size as u64,
                // SAFETY: by the contract.
                period: unsafe { sampler::period(thread) },
                points,
                function,
                is_mapping: false,
                lazy: 0,
                caller: 0,
            };
            let token = native::sampled(
                &request,
                || false,
                |recording| nthbyte_process::place(recording, inside),
            );
            place.set_token(token);
            if token != NOT_INTERESTED {
                let (period, bytes) = (request.period, request.size);
                probes::allocated(block as usize, bytes, || {
                    Weight::of(Distances::Exponential, period, bytes, bytes, points).bytes
                });
            }
            // SAFETY: by the contract.
            unsafe { sampler::follow_period(thread) };
        })
    });
}

/// Reports that the memory of a sample is freed.
fn report_freed(block: *mut u8, token: u64) {
    if token != NOT_INTERESTED {
        probes::freed(block as usize);
        keep_errno(|| unobserved(|| native::freed(token)));
    }
}
