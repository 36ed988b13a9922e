//! Dealing blocks: how a class's list is filled, and cut at the sample point.
//!
//! The fast path pops a class's list and pushes to it, and counts nothing but the pushes. That is enough.
//! If a list held `handed` blocks when it was dealt, and `free` has pushed `pushed` since, and it
//! holds `left` now, then `handed + pushed - left` blocks were allocated. So:
//!
//! - **D1** (settled): when a list is found empty, or is counted, the number of allocations since it was dealt is known
//!   exactly, and the class's countdown is moved on by it.
//! - **D2** (cut): `handed + granted ≤ k`, where `granted` is the number of pushes that are allowed
//!   before `free` must ask again, and k the number of allocations that come before the one that
//!   covers the next sample point. So no allocation on the fast path covers a sample point, and the one that does finds its list empty.
//!
//! `free` asks when its allowance runs out. Then the list is counted, what is more than a class should keep goes
//! back to the pages it came from (which lets them become empty), and pushes are granted
//! anew. Close to a sample point at most an eighth of k stays on the list, so that the rest can be granted. A list that
//! runs empty is dealt half of k, but few blocks if some had to be put back before, and twice as many each time. For each block on
//! a list is looked at when `free` asks, and most programs free about as much as they allocate.

use crate::arena::ArenaTable;
use crate::class::GROUP_OF;
use crate::heap::{Class, Heap, SAMPLED_SLOT};
use crate::observer::NOT_INTERESTED;
use crate::page::{Block, Label, PAGE_HEADER, Page, Tag, label_of};
use core::ptr::null_mut;

/// How many bytes `free` may push before the list is looked at, if no sample point is near: so many if the list was too
/// long when it was looked at last, and twice as many as the last time if it was not, up to the greatest.
pub const GRANT_BYTES: u32 = 16 << 10;
const GRANT_BYTES_AT_MOST: u32 = 128 << 10;
/// How many bytes of free blocks stay on a list that is looked at.
const KEEP_BYTES: usize = 8 << 10;
/// At least so many blocks are granted and kept, whatever their size. (docs/fast-path.md)
const GRANT_BLOCKS: usize = 32;
const KEEP_BLOCKS: usize = 16;
/// How many blocks are dealt at most at first, and after a list that was too long for a sample point that was near; then twice as
/// many each time.
pub const DEAL_BLOCKS: usize = 16;

impl Class {
    fn block_size(&self) -> usize {
        self.size as usize
    }

    /// k: how many allocations come before the one that covers the next sample point.
    pub fn until_sample(&self) -> usize {
        usize::try_from(
            self.countdown
                .allocations_until_sample(u64::from(self.size)),
        )
        .unwrap_or(usize::MAX)
    }

    /// How many blocks may stay on a list that is looked at, if no sample point is near.
    fn may_keep_at_most(&self) -> usize {
        (KEEP_BYTES / self.block_size()).max(KEEP_BLOCKS)
    }
}

impl Heap {
    /// D1: moves the class's countdown on by what was allocated since the list was dealt or settled. There are
    /// `on_list` blocks on it now. D2 goes on to hold.
    pub fn settle(&mut self, class: usize, on_list: usize) {
        let allowance = self.slots[class].allowance;
        let class = &mut self.classes[class];
        let pushed = class.granted + 1 - allowance;
        let allocated = (class.handed + pushed - on_list) as u64;
        class.allocations += allocated;
        class.countdown.pass(allocated * u64::from(class.size));
        class.handed = on_list;
        class.granted = allowance - 1;
    }

    /// Grants as many pushes as D2 allows.
    pub fn grant(&mut self, class: usize) {
        let slot = &mut self.slots[class];
        let class = &mut self.classes[class];
        let most = (class.grant_bytes as usize / class.block_size()).max(GRANT_BLOCKS);
        class.granted = (class.until_sample() - class.handed).min(most);
        slot.allowance = class.granted + 1;
    }

    /// Fills the list of a settled class, which is empty while k is not 0. False if there is no memory.
    pub fn refill(&mut self, class: usize, table: ArenaTable) -> bool {
        let state = &mut self.classes[class];
        let until_sample = state.until_sample();
        debug_assert!(until_sample > 0 && self.slots[class].head.is_null());
        let most = (until_sample / 2).clamp(1, state.deal_blocks);
        state.deal_blocks = state.deal_blocks.saturating_mul(2);
        let (list, count) = self.take(class, most, table);
        if count == 0 {
            return false;
        }
        self.slots[class].head = list;
        self.classes[class].handed = count;
        self.grant(class);
        true
    }

    /// Settles a class, puts back what is too much on its list, and grants pushes anew.
    pub fn rebalance(&mut self, class: usize, table: ArenaTable) {
        let (kept, rest) = self.split(class, self.classes[class].may_keep_at_most());
        let put_back = self.put_back_list(rest, table);
        self.settle(class, kept + put_back);
        let state = &mut self.classes[class];
        state.handed = kept;
        state.grant_bytes = if put_back == 0 {
            (state.grant_bytes * 2).min(GRANT_BYTES_AT_MOST)
        } else {
            GRANT_BYTES
        };
        self.trim(class, table);
    }

    /// Puts back what is more than an eighth of k, so that D2 leaves room for pushes, and grants them. The class is
    /// settled, though its countdown may have been changed after that.
    pub fn trim(&mut self, class: usize, table: ArenaTable) {
        let keep = self.classes[class].until_sample() / 8;
        if self.classes[class].handed > keep {
            let (_, rest) = self.split(class, keep);
            self.put_back_list(rest, table);
            self.classes[class].handed = keep;
            self.classes[class].deal_blocks = DEAL_BLOCKS;
        }
        self.grant(class);
    }

    /// Cuts a class's list after `keep` blocks: how many it has now, and the rest.
    fn split(&mut self, class: usize, keep: usize) -> (usize, *mut Block) {
        let head = self.slots[class].head;
        if keep == 0 || head.is_null() {
            self.slots[class].head = null_mut();
            return (0, head);
        }
        let mut kept = 1;
        let mut last = head;
        // SAFETY: the list holds free blocks, which link to each other.
        unsafe {
            while kept < keep && !(*last).next.is_null() {
                last = (*last).next;
                kept += 1;
            }
            (kept, core::mem::replace(&mut (*last).next, null_mut()))
        }
    }

    /// How many blocks are on the list of a class.
    pub fn count(&self, class: usize) -> usize {
        let mut count = 0;
        let mut block = self.slots[class].head;
        while !block.is_null() {
            count += 1;
            // SAFETY: the list holds free blocks, which link to each other.
            block = unsafe { (*block).next };
        }
        count
    }

    /// Up to `most` blocks of a class, and their number; none if there is no memory. Pages that were
    /// freed to most recently come first, then fresh blocks.
    fn take(&mut self, class: usize, most: usize, table: ArenaTable) -> (*mut Block, usize) {
        // SAFETY: pages in a class's queue, and its fresh page, are pages of this heap in use.
        unsafe {
            let page = self.classes[class].queue;
            let (list, count) = if page.is_null() {
                let Some(page) = self.fresh_page(class, table) else {
                    return (null_mut(), 0);
                };
                let carved = Page::carve(page, most);
                if !(*page).is_fresh() {
                    self.classes[class].fresh = null_mut();
                }
                carved
            } else if (*page).free as usize <= most {
                Self::dequeue(&mut self.classes[class].queue, page);
                (*page).take_local()
            } else {
                (Page::take_some(page, most), most)
            };
            self.classes[class].used += count;
            (list, count)
        }
    }

    fn fresh_page(&mut self, class: usize, table: ArenaTable) -> Option<*mut Page> {
        let mut page = self.classes[class].fresh;
        if page.is_null() {
            page = self.new_page(class, class, table)?;
            self.classes[class].fresh = page;
        }
        Some(page)
    }

    /// A page for a class, or for a group of them if `slot` is that of sampled blocks, whose freed blocks go to `slot`.
    fn new_page(&mut self, class: usize, slot: usize, table: ArenaTable) -> Option<*mut Page> {
        let mut acquired = self.arenas.acquire(table);
        if acquired.is_none() && !self.arenas.is_patient() {
            self.recall_all(table);
            acquired = self.arenas.acquire(table);
            if acquired.is_none() {
                self.arenas.refused();
            }
        }
        let (page, reserved) = acquired?;
        debug_assert!(reserved >= PAGE_HEADER);
        // SAFETY: the page was just acquired; `slot` is one of the slots.
        unsafe {
            Page::init(
                page,
                class,
                slot == SAMPLED_SLOT,
                &raw mut self.slots[slot],
                reserved,
            );
        }
        Some(page)
    }

    /// Takes all lists back, so that pages become empty that can be.
    #[cold]
    fn recall_all(&mut self, table: ArenaTable) {
        for class in 0..self.classes.len() {
            let (_, list) = self.split(class, 0);
            let on_list = self.put_back_list(list, table);
            self.settle(class, on_list);
            self.classes[class].handed = 0;
            self.grant(class);
        }
    }

    /// Puts the blocks of a list on their pages' lists, and says how many they were. Blocks of one page that
    /// follow each other, as they often do, are moved together and not written to.
    fn put_back_list(&mut self, list: *mut Block, table: ArenaTable) -> usize {
        let mut total = 0;
        let mut first = list;
        while !first.is_null() {
            let page = Page::of(first);
            let mut last = first;
            let mut count = 1;
            // SAFETY: the list holds free blocks of this heap, which link to each other.
            unsafe {
                let mut next = (*last).next;
                while Page::of(next) == page {
                    last = next;
                    count += 1;
                    next = (*last).next;
                }
                self.put_back_run(page, first, last, count, table);
                first = next;
            }
            total += count;
        }
        total
    }

    /// Puts a block on its page's list; the page may become empty, and go.
    ///
    /// # Safety
    /// The block is of this heap, and neither in use nor on any list.
    pub unsafe fn put_back(&mut self, block: *mut Block, table: ArenaTable) {
        // SAFETY: by the caller.
        unsafe { self.put_back_run(Page::of(block), block, block, 1, table) }
    }

    /// As [`Heap::put_back`], for `count` blocks of one page that are linked from `first` to `last`.
    unsafe fn put_back_run(
        &mut self,
        page: *mut Page,
        first: *mut Block,
        last: *mut Block,
        count: usize,
        table: ArenaTable,
    ) {
        // SAFETY: by the caller; a block's page is in use, and known to its class.
        unsafe {
            let class = &mut self.classes[Page::class_of(first)];
            class.used -= count;
            let (queue, fresh) = if (*page).sampled {
                let group = &mut self.sampled[(*page).class as usize];
                (&mut group.queue, &mut group.fresh)
            } else {
                (&mut class.queue, &mut class.fresh)
            };
            (*page).push_local(first, last, count);
            // The page that sampled blocks are carved from stays, for the next sample.
            if !(*page).is_empty() || ((*page).sampled && *fresh == page) {
                if !(*page).queued {
                    Self::enqueue(queue, page);
                }
                return;
            }
            if (*page).queued {
                Self::dequeue(queue, page);
            }
            if *fresh == page {
                *fresh = null_mut();
            }
            self.arenas.release(page, table);
        }
    }

    /// A block from a page that is kept for sampled blocks, with a label that no observer has given a token yet; null if
    /// there is no memory.
    #[allow(clippy::cast_possible_truncation)] // there are fewer than 256 classes
    pub fn take_sampled(&mut self, class: usize, table: ArenaTable) -> *mut Block {
        // SAFETY: pages in a group's queue, and its fresh page, are pages of this heap in use.
        unsafe {
            let group = usize::from(GROUP_OF[class]);
            let mut page = self.sampled[group].queue;
            let block = if page.is_null() {
                page = self.sampled[group].fresh;
                if page.is_null() {
                    let Some(new) = self.new_page(group, SAMPLED_SLOT, table) else {
                        return null_mut();
                    };
                    page = new;
                    self.sampled[group].fresh = page;
                }
                let (block, _) = Page::carve(page, 1);
                if !(*page).is_fresh() {
                    self.sampled[group].fresh = null_mut();
                }
                block
            } else {
                let block = Page::take_some(page, 1);
                if (*page).free == 0 {
                    Self::dequeue(&mut self.sampled[group].queue, page);
                }
                block
            };
            self.classes[class].used += 1;
            let (token, session) = (NOT_INTERESTED, self.session);
            label_of(block).write(Label {
                tag: Tag { token, session },
                class: class as u8,
            });
            block
        }
    }

    /// One block that is not kept for samples, past the class's list; null if there is no memory.
    pub fn take_one(&mut self, class: usize, table: ArenaTable) -> *mut Block {
        self.take(class, 1, table).0
    }

    /// # Safety
    /// `page` is in use and in no queue.
    unsafe fn enqueue(queue: &mut *mut Page, page: *mut Page) {
        // SAFETY: by the caller; queued pages are in use.
        unsafe {
            (*page).queued = true;
            (*page).previous = null_mut();
            (*page).next = *queue;
            if !(*queue).is_null() {
                (**queue).previous = page;
            }
        }
        *queue = page;
    }

    /// # Safety
    /// `page` is in this queue.
    unsafe fn dequeue(queue: &mut *mut Page, page: *mut Page) {
        // SAFETY: by the caller; queued pages are in use.
        unsafe {
            (*page).queued = false;
            let (previous, next) = ((*page).previous, (*page).next);
            if previous.is_null() {
                *queue = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}
