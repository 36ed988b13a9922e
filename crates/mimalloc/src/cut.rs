//! Lists that end before the sample point.
//!
//! ```text
//! pages_free_direct[w] ─▶ fake.free ─▶ 1 ─▶ 2 ─▶ 3 ─▶ end     fake.used: what was allocated
//!                         real.free ─▶ 4 ─▶ 5 ─▶ …            the sample point lies in 4
//! ```
//!
//! The blocks on a fake record's list are in use as far as mimalloc knows: `real.used` has them. So a collection, which puts a
//! page's freed blocks before its free ones, cannot make the list longer, and neither can a free: it goes to `real.local_free`.
//! Only allocations change `fake.used`. This gives the two invariants of every cut list:
//!
//! - **D1**: when a list is looked at, the number of allocations since the last look is known exactly.
//! - **D2**: no allocation of the fast path contains a sample point.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_sampling::{Countdown, SamplePoints};

use crate::layout::{
    Block, CLASSES, GC_BITS, HEAP_GC, HEAP_GC_PRE, HEAPS, PRE_HEADER, Page, SMALL_MAX, class_of,
    direct, first_entries, heap_at,
};
use crate::record::{Class, Record, add, are_several, domain_of, free_list, pages_of};
use crate::settings;

static FIRST_ENTRIES: [u8; CLASSES] = first_entries();

/// What `debug_offset` of a page is while all its blocks are known to have the bit of the collector clear. The field has no use
/// in release builds, and mimalloc sets it anew when the page begins another use.
const SEEN: u8 = 0xA5;

/// Counts what was allocated since the last look (D1).
pub fn count(class: &mut Class) -> u64 {
    let allocations = u64::from(class.fake.used.wrapping_sub(class.base));
    class.base = class.fake.used;
    class.allocations += allocations;
    class
        .countdown
        .pass(allocations * u64::from(class.fake.block_size));
    allocations
}

/// The number of allocations before the one that is sampled.
pub fn until_sample(class: &Class) -> u64 {
    class
        .countdown
        .allocations_until_sample(u64::from(class.fake.block_size))
}

/// Points the entries of a class at its fake record.
///
/// # Safety
/// The heap is the calling thread's.
pub unsafe fn point(heap: *mut u8, number: usize, class: &mut Class) {
    let last = (class.fake.block_size as usize).min(SMALL_MAX) / 8;
    for words in usize::from(FIRST_ENTRIES[number])..=last {
        // SAFETY: an entry of the heap, by the contract.
        unsafe { direct(heap).add(words).write(&raw mut class.fake) };
    }
}

/// Clears the bit by which the collector knows an object, in all blocks of a list. It looks at each block in use. A freed
/// object is unknown to it, but a block that was never used since its page was carved holds anything.
///
/// # Safety
/// Free blocks of a page of this heap.
pub unsafe fn hide_from_collector(heap: usize, mut block: *mut Block) {
    let at = GC_BITS + if heap == HEAP_GC_PRE { PRE_HEADER } else { 0 };
    while !block.is_null() {
        // SAFETY: by the contract; objects of the collector have more bytes.
        unsafe {
            block.cast::<u8>().add(at).write(0);
            block = (*block).next;
        }
    }
}

/// Takes from a page what may be allocated before the sample point (D2), if the class's list is empty.
///
/// # Safety
/// The page is of this class of the calling thread.
pub unsafe fn refill(heap: usize, class: &mut Class, real: *mut Page) {
    let most = until_sample(class);
    // SAFETY: by the contract; no collection runs while this thread is in an allocation.
    unsafe {
        let head = (*real).free;
        if !class.fake.free.is_null() || head.is_null() || most == 0 {
            return;
        }
        if heap >= HEAP_GC
            && (real != class.real
                || (*real).capacity != class.capacity
                || (*real).debug_offset != SEEN)
        {
            hide_from_collector(heap, head);
            (*real).debug_offset = SEEN;
        }
        let all = u32::from((*real).capacity).wrapping_sub((*real).used);
        // Without blocks that were freed here or elsewhere, all that are not in use are on the list.
        let taken = if (*real).local_free.is_null() && u64::from(all) <= most {
            (*real).free = null_mut();
            all
        } else {
            let mut tail = head;
            let mut taken = 1;
            while u64::from(taken) < most && !(*tail).next.is_null() {
                tail = (*tail).next;
                taken += 1;
            }
            (*real).free = (*tail).next;
            (*tail).next = null_mut();
            taken
        };
        (*real).used += taken;
        class.fake.free = head;
        class.fake.zero_and_expire = 0;
        class.real = real;
        class.capacity = (*real).capacity;
    }
}

/// The distance to the next sample point.
fn countdown(points: &mut Option<SamplePoints>) -> Countdown {
    points.as_mut().map_or(Countdown::NEVER, Countdown::new)
}

impl Record {
    /// A class, which begins now if this is its first use.
    ///
    /// # Safety
    /// The heap is the record's, whose thread is the calling one.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn class(&mut self, heap: usize, number: usize, block_size: u32) -> &mut Class {
        let own: *mut Self = self;
        let class = &mut self.classes[heap][number];
        if !class.is_active {
            class.is_active = true;
            class.fake.thread_free = own as usize;
            class.fake.block_size = block_size;
            class.fake.heap = heap_at(self.state.load(Relaxed) as *mut u8, heap) as usize;
            class.countdown = countdown(&mut self.points);
            self.active[heap][self.actives[heap]] = number as u8;
            self.actives[heap] += 1;
        }
        class
    }

    /// Looks at the heaps of a thread that is new here: from now on, nothing is allocated uncounted.
    ///
    /// # Safety
    /// The state is the calling thread's, and the record is of it.
    pub unsafe fn adopt(&mut self, state: *mut u8) {
        for heap in 0..HEAPS {
            let address = heap_at(state, heap);
            for words in 1..=SMALL_MAX / 8 {
                // SAFETY: an entry of the heap: a page of it, or an empty record.
                unsafe {
                    let page = *direct(address).add(words);
                    let size = (*page).block_size;
                    if size == 0
                        || (*page).heap != address as usize
                        || self.class_at(page).is_some()
                    {
                        continue;
                    }
                    let number = class_of(8 * words);
                    let class = self.class(heap, number, size);
                    refill(heap, class, page);
                    point(address, number, class);
                }
            }
        }
        // SAFETY: by the contract.
        self.pages = unsafe { pages_of(state) };
    }

    /// Takes over the settings of the session, if they are others than the thread's. All lists go back to their pages then, for
    /// they end at the sample points from before.
    ///
    /// # Safety
    /// The state is the calling thread's, and the record is of it.
    #[cold]
    #[inline(never)]
    pub unsafe fn take_over(&mut self, state: *mut u8) {
        let Some((version, settings)) = settings::read() else {
            return;
        };
        self.version = version;
        let is_new = self.session != settings.session;
        self.session = settings.session;
        self.observer = settings.observer;
        self.points = settings.points.map(|mut points| {
            points.diverge(Self::next_number());
            points
        });
        self.large = countdown(&mut self.points);
        for (heap, number) in self.all_active() {
            let class = &mut self.classes[heap][number];
            count(class);
            let list = std::mem::replace(&mut class.fake.free, null_mut());
            // SAFETY: the list's blocks are in use for mimalloc, and nobody uses them.
            unsafe { free_list(list, domain_of(heap)) };
            if is_new {
                class.allocations = 0;
            }
            class.countdown = countdown(&mut self.points);
        }
        if is_new {
            self.counts.begin();
        }
        for heap in 0..HEAPS {
            // SAFETY: by the contract.
            unsafe { self.repair(state, heap) };
        }
        // SAFETY: by the contract.
        self.pages = unsafe { pages_of(state) };
    }

    fn all_active(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (active, actives) = (self.active, self.actives);
        (0..HEAPS).flat_map(move |heap| {
            (0..actives[heap]).map(move |at| (heap, usize::from(active[heap][at])))
        })
    }

    /// Points the entries of a heap at our records where mimalloc has set them to pages of its own.
    ///
    /// # Safety
    /// As for [`Record::take_over`].
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn repair(&mut self, state: *mut u8, heap: usize) {
        let address = heap_at(state, heap);
        let numbers = self.active[heap];
        for &number in &numbers[..self.actives[heap]] {
            // SAFETY: by the contract.
            unsafe { self.put_right(address, heap, usize::from(number)) };
        }
    }

    /// Points the entries of a class that was used at its record, if mimalloc has set them to a page of its own.
    ///
    /// # Safety
    /// The heap, with this address and number, is the one of the calling thread's record.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn put_right(&mut self, address: *mut u8, heap: usize, number: usize) {
        let class = &mut self.classes[heap][number];
        let words = class.fake.block_size as usize / 8;
        if words > SMALL_MAX / 8 {
            return;
        }
        // SAFETY: an entry of the heap.
        unsafe {
            if *direct(address).add(words) != &raw mut class.fake {
                point(address, number, class);
                add(&self.counts.displaced, 1);
            }
        }
    }

    /// After mimalloc's generic path: if pages came or went, in any heap, entries of any class may have been set. Other threads
    /// may have freed the first block of a full page of this heap, so that its own entries are looked at each time once there were
    /// other threads.
    ///
    /// # Safety
    /// As for [`Record::take_over`].
    #[inline]
    pub unsafe fn look(&mut self, state: *mut u8, heap: usize) {
        // SAFETY: by the contract.
        unsafe {
            let pages = pages_of(state);
            if pages == self.pages {
                if are_several() {
                    self.repair(state, heap);
                }
            } else {
                self.pages = pages;
                for heap in 0..HEAPS {
                    self.repair(state, heap);
                }
            }
        }
    }
}
