//! The slow paths: the list is empty, the request is large, or the page of a freed block has a flag.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_heap::{BlockDomain, Fallback};

use crate::cut::{count, had_frees, point, refill, until_sample};
use crate::layout::{
    FLAG_ALIGNED, HUGE_BLOCK, SHARED_MAX, SMALL_MAX, class_of, direct, heap_at, heap_number,
    page_of, segment_of, size_of_queue, thread_of,
};
use crate::record::{self, Class, INSIDE, Record, add, domain_of};
use crate::sampled::{self, Sample};
use crate::settings::{marked, original, version};
use crate::thread::{thread_pointer, thread_state};
use crate::tokens::{self, SampledPage};

/// A request of a thread with a record.
#[derive(Clone, Copy)]
struct Request {
    /// The number and the address of the heap.
    heap: usize,
    address: *mut u8,
    size: usize,
    zero: bool,
    /// The return address of the call of our function; 0 if unknown.
    site: usize,
}

impl Request {
    /// Asks mimalloc.
    unsafe fn ask(self, record: &Record) -> *mut u8 {
        // SAFETY: by the contract of `small` and `large`.
        asking(record, || unsafe {
            ask(original(domain_of(self.heap)), self.size, self.zero)
        })
    }

    /// A block of so many bytes, which are zero if that is asked for.
    unsafe fn zeroed(self, block: *mut u8, bytes: usize) -> *mut u8 {
        if self.zero {
            // SAFETY: by the caller, the block has so many bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        block
    }
}

/// Asks mimalloc.
///
/// # Safety
/// In a thread with a state.
#[inline(always)]
unsafe fn ask(original: Fallback, size: usize, zero: bool) -> *mut u8 {
    // SAFETY: mimalloc's function, by the contract.
    unsafe {
        if zero {
            (original.calloc)(original.context, 1, size).cast()
        } else {
            (original.malloc)(original.context, size).cast()
        }
    }
}

/// Asks mimalloc, whose mappings are not the program's: two stores, where a mark costs a call.
#[inline(always)]
fn asking(record: &Record, ask: impl FnOnce() -> *mut u8) -> *mut u8 {
    record.is_asking.store(true, Relaxed);
    let block = ask();
    record.is_asking.store(false, Relaxed);
    block
}

/// The calling thread's record, with the settings of the session.
///
/// # Safety
/// The state is the calling thread's.
#[inline]
unsafe fn prepared(state: *mut u8) -> Option<&'static mut Record> {
    // SAFETY: by the contract.
    unsafe { prepare(state, record::current(state)?) }
}

/// As [`prepared`], for a record that is known to be the thread's.
#[inline]
unsafe fn prepare(
    state: *mut u8,
    (record, is_new): (*mut Record, bool),
) -> Option<&'static mut Record> {
    // SAFETY: by the contract. One reference at a time: only this thread uses its record, and `INSIDE` says whether it is
    // further up the stack.
    unsafe {
        let record = &mut *record;
        if record.version == INSIDE {
            return None;
        }
        if record.version != version() {
            record.take_over(state);
        }
        if is_new {
            record.adopt(state);
        }
        Some(record)
    }
}

/// Lets the calling thread take part in the session from now on, if it has a state.
pub fn join() {
    // SAFETY: the place was found before anything was installed; a state is the calling thread's.
    unsafe {
        let state = thread_state();
        if !state.is_null() {
            prepared(state);
        }
    }
}

/// The record behind an entry of the calling thread's heap, if mimalloc has not set it, and the thread has the current settings.
///
/// # Safety
/// The heap is one of the calling thread's.
#[inline(always)]
unsafe fn behind(address: *mut u8, words: usize) -> Option<(*mut Record, *mut Class)> {
    // SAFETY: by the contract.
    unsafe {
        let entry = *direct(address).add(words);
        let record = record::of_fake(entry)?;
        ((*record).version == version()).then_some((record, entry.cast()))
    }
}

/// Allocates at most [`SMALL_MAX`] bytes for the call that returns to `site`. The list is empty, or the entry is not ours.
///
/// # Safety
/// The heap is one of the calling thread's, whose state is there. Called by our functions only.
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn small<const OBJECT: bool, const ZERO: bool>(
    address: *mut u8,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: by the contract. No reference to the record or the class is alive while mimalloc runs, which looks at the list.
    unsafe {
        if let Some((record, class)) = behind(address, size.div_ceil(8)) {
            let block_size = u64::from((*class).fake.block_size);
            let used = (*class).fake.used;
            let allocations = u64::from(used.wrapping_sub((*class).base)) + 1;
            let bytes = allocations * block_size;
            debug_assert!((*class).fake.free.is_null());
            if bytes < (*class).countdown.bytes_until_sample() {
                let had_frees = had_frees(address);
                let block = asking(&*record, || {
                    ask(original(BlockDomain::of_objects(OBJECT)), size, ZERO)
                });
                if !block.is_null() {
                    (*class).base = used;
                    (*class).allocations += allocations;
                    (*class).countdown.pass_fewer(bytes);
                    refill(&mut *class, page_of(segment_of(block), block));
                    if *direct(address).add(block_size as usize / 8) != class.cast() {
                        point(address, usize::from((*class).number), &mut *class);
                    }
                    (*record).look(usize::from((*class).heap), had_frees);
                }
                return block.cast();
            }
        }
        otherwise(BlockDomain::of_objects(OBJECT), address, size, ZERO, site)
    }
}

/// Allocates more than [`SMALL_MAX`] bytes for the call that returns to `site`.
///
/// # Safety
/// As for [`small`].
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn large<const OBJECT: bool, const ZERO: bool>(
    address: *mut u8,
    size: usize,
    site: usize,
) -> *mut c_void {
    // SAFETY: as in `small`.
    unsafe {
        if let Some((record, class)) = behind(address, SMALL_MAX / 8)
            && (size as u64) < (*record).large.bytes_until_sample()
        {
            (*record).large.pass_fewer(size as u64);
            add(&(*record).counts.large, 1);
            add(&(*record).counts.large_bytes, size as u64);
            let had_frees = had_frees(address);
            let block = asking(&*record, || {
                ask(original(BlockDomain::of_objects(OBJECT)), size, ZERO)
            });
            (*record).look(usize::from((*class).heap), had_frees);
            return block.cast();
        }
        otherwise(BlockDomain::of_objects(OBJECT), address, size, ZERO, site)
    }
}

/// As [`small`] and [`large`], where a sample is due, or the thread's record is not known.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn otherwise(
    domain: BlockDomain,
    address: *mut u8,
    size: usize,
    zero: bool,
    site: usize,
) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe {
        let state = thread_state();
        let heap = heap_number(state, address as usize);
        let Some((heap, record)) = heap.zip(prepared(state)) else {
            return ask(marked(domain), size, zero).cast();
        };
        let request = Request {
            heap,
            address,
            size,
            zero,
            site,
        };
        let block = if size > SMALL_MAX {
            any_large(record, request)
        } else {
            any_small(record, request)
        };
        block.cast()
    }
}

unsafe fn any_small(record: &mut Record, request: Request) -> *mut u8 {
    let Request {
        heap,
        address,
        size,
        site,
        ..
    } = request;
    let number = class_of(size);
    // SAFETY: the calling thread's heap and record.
    unsafe {
        let entry = *direct(address).add(size.div_ceil(8));
        let class = record.class(heap, number, size_of_queue(number) as u32);
        let is_ours = entry == &raw mut class.fake;
        count(class);
        let block = class.fake.free;
        if !block.is_null() {
            // It was filled a moment ago, or mimalloc's own page stood before it.
            class.fake.free = (*block).next;
            class.fake.used += 1;
            let block_size = class.fake.block_size as usize;
            if !is_ours {
                point(address, number, class);
                add(&record.counts.displaced, 1);
            }
            return request.zeroed(block.cast(), block_size);
        }
        if until_sample(class) == 0
            && let Some((block, page)) = sampled::block(record, heap, address, size)
        {
            let points = pass_sample(record, heap, number);
            let class = &mut record.classes[heap][number];
            let block_size = class.fake.block_size as usize;
            point(address, number, class);
            record.look(heap, true);
            request.zeroed(block, block_size);
            let taken = Sample {
                block,
                requested: size,
                block_size,
                points,
                heap,
                site,
            };
            sampled::tell(record, &taken, page);
            return block;
        }
        let block = request.ask(record);
        if block.is_null() {
            return block;
        }
        let page = page_of(segment_of(block), block);
        let class = &mut record.classes[heap][number];
        if until_sample(class) == 0 {
            // There was no block of a page for samples.
            pass_sample(record, heap, number);
            add(&record.counts.lost, 1);
        } else {
            class.allocations += 1;
            class.countdown.pass(u64::from(class.fake.block_size));
        }
        let class = &mut record.classes[heap][number];
        refill(class, page);
        if *direct(address).add(class.fake.block_size as usize / 8) != &raw mut class.fake {
            point(address, number, class);
        }
        record.look(heap, true);
        block
    }
}

/// Counts an allocation that contains a sample point, and draws the next one. Returns the number of sample points.
#[unsafe(link_section = "nthbyte_hot")]
fn pass_sample(record: &mut Record, heap: usize, number: usize) -> u32 {
    let class = &mut record.classes[heap][number];
    class.allocations += 1;
    let bytes = u64::from(class.fake.block_size);
    record
        .points
        .as_mut()
        .map_or(0, |points| class.countdown.advance(bytes, points))
}

unsafe fn any_large(record: &mut Record, request: Request) -> *mut u8 {
    let Request {
        heap, size, site, ..
    } = request;
    let points = count_large(record, size);
    // SAFETY: the calling thread's heap and record.
    unsafe {
        let sampled = (points > 0 && size <= SHARED_MAX)
            .then(|| sampled::block(record, heap, request.address, size))
            .flatten();
        let block = match sampled {
            Some((block, _)) => request.zeroed(block, size),
            None => request.ask(record),
        };
        record.look(heap, true);
        if points > 0 && !block.is_null() {
            let page = sampled.map(|(_, page)| page);
            let taken = Sample {
                block,
                requested: size,
                block_size: size,
                points,
                heap,
                site,
            };
            tell_large(record, &taken, page);
        }
        block
    }
}

/// Counts a request that is larger than small ones. Returns the number of sample points in it.
#[unsafe(link_section = "nthbyte_hot")]
fn count_large(record: &mut Record, size: usize) -> u32 {
    add(&record.counts.large, 1);
    add(&record.counts.large_bytes, size as u64);
    match &mut record.points {
        Some(points) => record.large.advance(size as u64, points),
        None => 0,
    }
}

/// Tells of a sample that is larger than small ones. `page` is the entry of its page, if that has one: the page of a block that
/// has it for itself gets one here. Without, the sample is lost.
///
/// # Safety
/// The block was just allocated by the calling thread.
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn tell_large(record: &mut Record, taken: &Sample, page: Option<&SampledPage>) {
    // SAFETY: by the contract.
    let alone = || unsafe { sampled::alone(taken.block) };
    match page.or_else(|| (taken.requested > SHARED_MAX).then(alone).flatten()) {
        Some(page) => sampled::tell(record, taken, page),
        None => add(&record.counts.lost, 1),
    }
}

/// The calling thread's record, if the thread has a state. Without a look at the settings: that would free blocks.
///
/// # Safety
/// The state is the calling thread's, or null.
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn of_freeing(state: *mut u8) -> Option<&'static mut Record> {
    // SAFETY: by the contract, and as in `prepare`.
    unsafe {
        let (record, is_new) = (!state.is_null()).then(|| record::current(state))??;
        if is_new {
            (*record).adopt(state);
        }
        ((*record).version != INSIDE).then(|| &mut *record)
    }
}

/// Frees a block whose page has a flag, or belongs to another thread, or has no other block in use.
///
/// # Safety
/// The block is in use, and of this domain.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
pub unsafe extern "C" fn free<const OBJECT: bool>(block: *mut u8) {
    let original = original(BlockDomain::of_objects(OBJECT));
    // SAFETY: by the contract.
    unsafe {
        let segment = segment_of(block);
        let page = page_of(segment, block);
        let state = thread_state();
        if (*page).flags & FLAG_ALIGNED != 0 && sampled::free(of_freeing(state), page, block) {
            return;
        }
        let words = (*page).block_size as usize / 8;
        if words > SMALL_MAX / 8 || thread_of(segment) != thread_pointer() || state.is_null() {
            (original.free)(original.context, block.cast());
            return;
        }
        let heap = heap_number(state, (*page).heap);
        (original.free)(original.context, block.cast());
        // mimalloc has moved the page between its queues, and may have made it the first one.
        if let Some(heap) = heap
            && record::of_fake(*direct(heap_at(state, heap)).add(words)).is_none()
            && let Some(record) = of_freeing(state)
        {
            let number = class_of(8 * words);
            if record.classes[heap][number].is_active {
                record.put_right(heap_at(state, heap), heap, number);
            }
        }
    }
}

/// Resizes a block that is larger than a segment, or may be: mimalloc does that itself.
///
/// # Safety
/// As for [`free`]; the calling thread has a state.
#[cold]
#[inline(never)]
pub unsafe fn resize_huge<const OBJECT: bool>(
    block: *mut u8,
    size: usize,
    site: usize,
) -> *mut c_void {
    let original = marked(BlockDomain::of_objects(OBJECT));
    // SAFETY: by the contract.
    unsafe {
        let page = page_of(segment_of(block), block);
        debug_assert!((*page).block_size >= HUGE_BLOCK);
        let entry = ((*page).flags & FLAG_ALIGNED != 0)
            .then(|| tokens::find(page))
            .flatten();
        let taken = entry.and_then(|entry| entry.take(block));
        let new: *mut u8 =
            (original.realloc)(original.context, block.cast::<c_void>(), size).cast();
        if new == block || new.is_null() {
            if let (Some(entry), Some((session, token))) = (entry, taken) {
                entry.set(block, session, token);
            }
            return new.cast();
        }
        sampled::moved(taken, new);
        let state = thread_state();
        if let Some(record) = prepared(state) {
            let points = count_large(record, size);
            let page = page_of(segment_of(new), new);
            let heap = heap_number(state, (*page).heap).unwrap_or(0);
            record.look(heap, true);
            if points > 0 {
                let taken = Sample {
                    block: new,
                    requested: size,
                    block_size: size,
                    points,
                    heap,
                    site,
                };
                tell_large(record, &taken, None);
            }
        }
        new.cast()
    }
}

/// The calling thread's record, for tests: how many allocations of a size come before the one that is sampled.
///
/// # Safety
/// The calling thread has a state, and is in no function of ours.
#[cfg(feature = "test-seams")]
pub unsafe fn until_sample_of(heap: usize, size: usize) -> Option<u64> {
    // SAFETY: by the contract.
    unsafe {
        let record = prepared(thread_state())?;
        let class = &mut record.classes[heap][class_of(size)];
        if !class.is_active {
            return None;
        }
        count(class);
        Some(until_sample(class))
    }
}

/// For tests: how many bytes away the next sample point among the thread's large requests is, and its samples that were lost.
///
/// # Safety
/// As for [`until_sample_of`].
#[cfg(feature = "test-seams")]
pub unsafe fn large_and_lost() -> Option<(u64, u64)> {
    // SAFETY: by the contract.
    let record = unsafe { prepared(thread_state())? };
    Some((
        record.large.bytes_until_sample(),
        record
            .counts
            .lost
            .load(std::sync::atomic::Ordering::Relaxed),
    ))
}

/// For tests: the number of the heap that a block is of, and the block's size.
///
/// # Safety
/// The calling thread has allocated it a moment ago.
#[cfg(feature = "test-seams")]
pub unsafe fn place_of(block: *mut u8) -> Option<(usize, usize)> {
    // SAFETY: by the contract.
    unsafe {
        let page = page_of(segment_of(block), block);
        Some((
            heap_number(thread_state(), (*page).heap)?,
            (*page).block_size as usize,
        ))
    }
}

/// For tests: the number of records, and of those that belong to no thread.
#[cfg(feature = "test-seams")]
pub fn records() -> (usize, usize) {
    let (mut all, mut free) = (0, 0);
    record::for_each(|record| {
        all += 1;
        // SAFETY: records are never freed.
        free +=
            usize::from(unsafe { (*record).state.load(std::sync::atomic::Ordering::Relaxed) } == 0);
    });
    (all, free)
}
