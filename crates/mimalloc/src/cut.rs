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
    direct, first_entries, has_delayed_frees, heap_at,
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
    class.held = class.held.wrapping_sub(allocations as u32);
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
#[unsafe(link_section = "nthbyte_hot")]
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
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
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

/// Takes from a page what may be allocated before the sample point (D2). The class's list is empty.
///
/// # Safety
/// The page is of this class of the calling thread.
#[inline(always)]
pub unsafe fn refill(class: &mut Class, real: *mut Page) {
    // SAFETY: by the contract; no collection runs while this thread is in an allocation.
    unsafe {
        let head = (*real).free;
        debug_assert!(class.fake.free.is_null());
        if head.is_null() {
            return;
        }
        let heap = usize::from(class.heap);
        if heap >= HEAP_GC {
            let is_seen = real == class.real
                && (*real).capacity == class.capacity
                && (*real).debug_offset == SEEN;
            if !is_seen {
                hide_from_collector(heap, head);
                (*real).debug_offset = SEEN;
                class.real = real;
                class.capacity = (*real).capacity;
            }
        }
        let all = u32::from((*real).capacity).wrapping_sub((*real).used);
        let bytes = u64::from(all) * u64::from(class.fake.block_size);
        // Without blocks that were freed here or elsewhere, all that are not in use are on the list.
        let taken = if (*real).local_free.is_null() && bytes < class.countdown.bytes_until_sample()
        {
            (*real).free = null_mut();
            all
        } else {
            match cut(real, until_sample(class)) {
                0 => return,
                taken => taken,
            }
        };
        (*real).used += taken;
        class.held = taken;
        class.fake.free = head;
    }
}

/// Leaves a page what comes after its first `most` free blocks. Returns how many these are.
///
/// # Safety
/// The page's list is not empty.
#[unsafe(link_section = "nthbyte_hot")]
unsafe fn cut(real: *mut Page, most: u64) -> u32 {
    if most == 0 {
        return 0;
    }
    // SAFETY: by the contract, free blocks.
    unsafe {
        let mut tail = (*real).free;
        let mut taken = 1;
        while u64::from(taken) < most && !(*tail).next.is_null() {
            tail = (*tail).next;
            taken += 1;
        }
        (*real).free = (*tail).next;
        (*tail).next = null_mut();
        taken
    }
}

/// The distance to the next sample point.
fn countdown(points: &mut Option<SamplePoints>) -> Countdown {
    points.as_mut().map_or(Countdown::NEVER, Countdown::new)
}

/// Whether mimalloc's generic path may set entries of a heap because other threads have freed blocks of full pages: asked before.
///
/// # Safety
/// The heap is the calling thread's.
#[inline(always)]
pub unsafe fn had_frees(heap: *mut u8) -> bool {
    // SAFETY: by the contract.
    are_several() && unsafe { has_delayed_frees(heap) }
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
            class.heap = heap as u8;
            class.number = number as u8;
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
                    refill(class, page);
                    point(address, number, class);
                }
            }
            // A large request finds the record by this entry.
            let number = class_of(SMALL_MAX);
            // SAFETY: by the contract.
            unsafe {
                let class = self.class(heap, number, SMALL_MAX as u32);
                point(address, number, class);
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

    /// After mimalloc's generic path: if pages came or went, in any heap, entries of any class may have been set. `had_frees`: other
    /// threads had freed blocks of full pages of this heap ([`had_frees`]), which may have set its own entries.
    ///
    /// # Safety
    /// As for [`Record::take_over`].
    #[inline(always)]
    pub unsafe fn look(&mut self, heap: usize, had_frees: bool) {
        // SAFETY: by the contract.
        unsafe {
            let state = self.state.load(Relaxed) as *mut u8;
            let pages = pages_of(state);
            if pages != self.pages || had_frees {
                self.look_at_entries(heap, pages);
            }
        }
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe extern "C" fn look_at_entries(&mut self, heap: usize, pages: usize) {
        let state = self.state.load(Relaxed) as *mut u8;
        // SAFETY: by the contract of `look`.
        unsafe {
            if pages == self.pages {
                self.repair(state, heap);
            } else {
                self.pages = pages;
                for heap in 0..HEAPS {
                    self.repair(state, heap);
                }
            }
        }
    }
}
