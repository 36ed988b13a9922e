//! Sampled blocks: where they come from, and who is told.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use nthbyte_heap::{NOT_INTERESTED, SampledBlock};
use nthbyte_host::keep_errno;
use nthbyte_sampling::{Period, SamplePoints};

use crate::cut::hide_from_collector;
use crate::layout::{
    Block, FLAG_ALIGNED, HEAP_GC, Page, SHARED_MAX, class_of, page_of, queue, segment_of,
    size_of_queue,
};
use crate::record::{Class, INSIDE, Record, add, domain_of, locked};
use crate::settings::{self, marked};
use crate::tokens::{self, SampledPage};

/// How often a page for sampled blocks is asked for, if mimalloc answers with one that has other blocks: it has reclaimed a page
/// of a thread that ended, or a page that was full is so no more.
const TRIES: usize = 4;

/// A block for a sample, with the page's entry. `None` if none could be had.
///
/// # Safety
/// The heap, with this number and address, is the one of the calling thread's record. The size is at most
/// [`SHARED_MAX`].
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn block(
    record: &mut Record,
    heap: usize,
    address: *mut u8,
    size: usize,
) -> Option<(*mut u8, &'static SampledPage)> {
    let number = class_of(size);
    let block_size = size_of_queue(number);
    // SAFETY: by the contract.
    let class = unsafe { record.class(heap, number, block_size as u32) };
    if class.spare.is_null() && !class.remote.load(Relaxed).is_null() {
        class.spare = class.remote.swap(null_mut(), Acquire);
    }
    if class.spare.is_null() {
        // SAFETY: by the contract.
        let made = (0..TRIES).any(|_| unsafe { fill(heap, address, number, class) });
        if !made {
            return None;
        }
        add(&record.counts.sampled_pages, 1);
    }
    let class = &mut record.classes[heap][number];
    let block = class.spare;
    class.spares.fetch_sub(1, Relaxed);
    // SAFETY: a free block, whose page is one of sampled blocks.
    unsafe {
        class.spare = (*block).next;
        let page = page_of(segment_of(block.cast()), block.cast());
        Some((block.cast(), tokens::find(page)?))
    }
}

/// Gets a page without blocks from mimalloc. Returns whether that succeeded. The queue of the class is hidden while mimalloc
/// allocates one block. All blocks of the page are in use then as far as mimalloc knows, and it makes no more of them.
unsafe fn fill(heap: usize, address: *mut u8, number: usize, class: &mut Class) -> bool {
    let original = marked(domain_of(heap));
    let size = size_of_queue(number);
    // SAFETY: the calling thread's heap.
    unsafe {
        let queue = queue(address, number);
        let (first, last) = ((*queue).first, (*queue).last);
        // Frees of other threads arrive meanwhile. The ends of the hidden queue must not be found empty, and freed.
        let ends = [first, if last == first { null_mut() } else { last }];
        for end in ends.into_iter().filter(|end| !end.is_null()) {
            (*end).used += 1;
        }
        (*queue).first = null_mut();
        (*queue).last = null_mut();
        let block = (original.malloc)(original.context, size).cast::<Block>();
        if !first.is_null() {
            if (*queue).last.is_null() {
                (*queue).first = first;
            } else {
                (*(*queue).last).next = first;
                (*first).prev = (*queue).last;
            }
            (*queue).last = last;
        }
        for end in ends.into_iter().filter(|end| !end.is_null()) {
            (*end).used -= 1;
        }
        if block.is_null() {
            return false;
        }
        let page = page_of(segment_of(block.cast()), block.cast());
        let is_new = (*page).used == 1
            && (*page).block_size as usize == size
            && (*page).local_free.is_null()
            && (*page).thread_free & !3 == 0
            && (*page).flags == 0;
        let capacity = u32::from((*page).capacity);
        let start = start_of(block, (*page).free, size, capacity);
        let owner: *mut Class = class;
        let entry = (is_new && start.is_some())
            .then(|| {
                locked(|| tokens::insert(page, start.unwrap_or(0), size, capacity, owner.cast()))
            })
            .flatten()
            .flatten();
        if entry.is_none() {
            (original.free)(original.context, block.cast());
            return false;
        }
        (*block).next = (*page).free;
        (*page).free = null_mut();
        (*page).reserved = (*page).capacity;
        (*page).used = capacity;
        (*page).flags |= FLAG_ALIGNED;
        if heap >= HEAP_GC {
            hide_from_collector(heap, block);
        }
        class.spare = block;
        class.spares.fetch_add(capacity, Relaxed);
        true
    }
}

/// The lowest block of a page, if the list has all of them but the first one, and they lie side by side.
unsafe fn start_of(
    block: *mut Block,
    mut free: *mut Block,
    size: usize,
    capacity: u32,
) -> Option<usize> {
    let (mut low, mut high, mut blocks) = (block as usize, block as usize, 1);
    while !free.is_null() && blocks <= capacity {
        (low, high, blocks) = (low.min(free as usize), high.max(free as usize), blocks + 1);
        // SAFETY: a free block of the page.
        free = unsafe { (*free).next };
    }
    (blocks == capacity && high - low == (capacity as usize - 1) * size).then_some(low)
}

/// Makes the page of a block that has it for itself one of sampled blocks. `None` without memory.
///
/// # Safety
/// The block was just allocated by the calling thread, and is larger than [`SHARED_MAX`].
pub unsafe fn alone(block: *mut u8) -> Option<&'static SampledPage> {
    // SAFETY: by the contract.
    unsafe {
        let page: *mut Page = page_of(segment_of(block), block);
        if (*page).capacity != 1 || (*page).used != 1 {
            return None;
        }
        let entry = locked(|| tokens::insert(page, block as usize, SHARED_MAX, 1, null_mut()))??;
        (*page).flags |= FLAG_ALIGNED;
        Some(entry)
    }
}

/// A sample, as its observer learns of it.
pub struct Sample {
    pub block: *mut u8,
    pub requested: usize,
    pub block_size: usize,
    pub points: u32,
    pub heap: usize,
    /// The return address of the call of our function; 0 if unknown.
    pub site: usize,
}

/// Tells the observer of a sample, and notes the block's token.
#[unsafe(link_section = "nthbyte_hot")]
pub fn tell(record: &mut Record, taken: &Sample, page: &SampledPage) {
    add(&record.counts.samples, 1);
    let Some(observer) = record.observer else {
        page.set(taken.block, record.session, NOT_INTERESTED);
        return;
    };
    let sample = SampledBlock {
        block: taken.block.cast::<c_void>(),
        requested: taken.requested,
        block_size: taken.block_size,
        points: taken.points,
        domain: domain_of(taken.heap),
        site: taken.site,
        near: 0,
    };
    let points = record.points.as_ref();
    let period = points.map_or(Period::EVERY, SamplePoints::period);
    // Inside of the observer, the thread does not come here.
    let version = record.version;
    // SAFETY: the thread's own record. The observer may come to a slow path, which looks at it.
    unsafe { (&raw mut record.version).write_volatile(INSIDE) };
    let token = keep_errno(|| (observer.sampled)(observer.context, &sample, period));
    record.version = version;
    page.set(taken.block, record.session, token);
}

/// Ends the sample of a block that is being freed, if its page is one of sampled blocks. Returns whether the block stays with the
/// thread that owns the page, for its next samples; if not, mimalloc frees it. `record` is the calling thread's.
///
/// # Safety
/// The block is in use, of this page, and is not used any more.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe fn free(record: Option<&mut Record>, page: *mut Page, block: *mut u8) -> bool {
    let Some(entry) = tokens::find(page) else {
        return false;
    };
    let Some((session, token)) = entry.take(block) else {
        return false;
    };
    tell_freed(session, token, block);
    let owner = entry.owner.load(Acquire).cast::<Class>();
    if owner.is_null() {
        return false;
    }
    let block = block.cast::<Block>();
    // SAFETY: classes are never freed. Only their thread uses `spare`.
    unsafe {
        (*owner).spares.fetch_add(1, Relaxed);
        if record.is_some_and(|record| record.class_at(owner.cast()).is_some()) {
            (*block).next = (*owner).spare;
            (*owner).spare = block;
            return true;
        }
        let remote = &(*owner).remote;
        let mut head = remote.load(Relaxed);
        loop {
            (*block).next = head;
            match remote.compare_exchange_weak(head, block, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }
}

/// Tells the observer that a sampled block is being freed, if its session is the current one.
fn tell_freed(session: u32, token: u32, contents: *mut u8) {
    if token == NOT_INTERESTED {
        return;
    }
    if let Some(settings) = settings::read_soon()
        && settings.session == session
        && let Some(observer) = settings.observer
    {
        keep_errno(|| (observer.freed)(observer.context, contents as usize, token));
    }
}

/// A block was resized by mimalloc itself, to another place: its sample ends.
pub fn moved(taken: Option<(u32, u32)>, contents: *mut u8) {
    if let Some((session, token)) = taken {
        tell_freed(session, token, contents);
    }
}
