//! Moves blocks from pages to lists, and back to their pages.

use crate::arena::ArenaTable;
use crate::class::GROUP_OF;
use crate::geometry::PAGE_HEADER;
use crate::heap::{Heap, SAMPLED_SLOT};
use crate::observer::NOT_INTERESTED;
use crate::page::{Block, Label, Order, Page, Tag, label_of};
use core::ptr::null_mut;

impl Heap {
    /// At most `limit` blocks of a class, and their number; none if there is no memory. The blocks come from the page
    /// to which a block was returned last; if there is none, they are carved.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn take(&mut self, class: usize, limit: usize, table: ArenaTable) -> (*mut Block, usize) {
        // SAFETY: pages in a class's queue, and its fresh page, are pages of this heap in use.
        unsafe {
            let page = self.classes[class].queue;
            let (list, count) = if page.is_null() {
                let Some(page) = self.fresh_page(class, table) else {
                    return (null_mut(), 0);
                };
                let carved = Page::carve(page, limit);
                if !(*page).is_fresh() {
                    self.classes[class].fresh = null_mut();
                }
                carved
            } else if (*page).free as usize <= limit {
                Self::dequeue(&mut self.classes[class].queue, page);
                Page::take_local(page)
            } else {
                (Page::take_some(page, limit), limit)
            };
            self.classes[class].used += count;
            (list, count)
        }
    }

    /// One block from an ordinary page, not from the class's list; null if there is no memory.
    pub fn take_one(&mut self, class: usize, table: ArenaTable) -> *mut Block {
        self.take(class, 1, table).0
    }

    /// A block from a page for sampled blocks; null if there is no memory. Its label has no token of the
    /// observer yet.
    #[allow(clippy::cast_possible_truncation)] // there are fewer than 256 classes
    #[unsafe(link_section = "nthbyte_hot")]
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

    fn fresh_page(&mut self, class: usize, table: ArenaTable) -> Option<*mut Page> {
        let mut page = self.classes[class].fresh;
        if page.is_null() {
            page = self.new_page(class, class, table)?;
            self.classes[class].fresh = page;
        }
        Some(page)
    }

    /// A page whose freed blocks are pushed to `slot`: for a class, or for a group of classes if `slot` is
    /// [`SAMPLED_SLOT`].
    #[unsafe(link_section = "nthbyte_hot")]
    fn new_page(&mut self, class: usize, slot: usize, table: ArenaTable) -> Option<*mut Page> {
        let mut acquired = self.arenas.acquire(table);
        if acquired.is_none() && !self.arenas.is_backing_off() {
            self.flush_lists(table);
            acquired = self.arenas.acquire(table);
            if acquired.is_none() {
                self.arenas.back_off();
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

    /// Returns the blocks of all lists to their pages. Pages that become empty can then serve other classes.
    #[cold]
    fn flush_lists(&mut self, table: ArenaTable) {
        for class in 0..self.classes.len() {
            self.return_aside(class, table);
            let (_, list) = self.split(class, 0);
            let on_list = self.return_list(list, table);
            self.settle(class, on_list);
            self.classes[class].listed = 0;
            self.renew_budget(class);
        }
    }

    /// Returns the blocks of a list to their pages. The result is the number of blocks. Consecutive
    /// blocks of one page, which are common, are moved together and not written to.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn return_list(&mut self, list: *mut Block, table: ArenaTable) -> usize {
        let mut total = 0;
        let mut first = list;
        while !first.is_null() {
            let page = Page::of(first);
            let mut last = first;
            let mut count = 1;
            let mut order = Order::ANY;
            // SAFETY: the list contains free blocks of this heap, which link to each other.
            unsafe {
                let mut next = (*last).next;
                while Page::of(next) == page {
                    order = order.link(last.addr(), next.addr());
                    last = next;
                    count += 1;
                    next = (*last).next;
                }
                self.return_run(page, first, last, count, order, table);
                first = next;
            }
            total += count;
        }
        total
    }

    /// Returns a block to its page. If the page is then empty, it is released.
    ///
    /// # Safety
    /// The block belongs to this heap, is not in use, and is on no list.
    pub unsafe fn return_block(&mut self, block: *mut Block, table: ArenaTable) {
        // SAFETY: by the caller.
        unsafe { self.return_run(Page::of(block), block, block, 1, Order::ANY, table) }
    }

    /// Like [`Heap::return_block`], for `count` blocks of one page that are linked from `first` to
    /// `last` in this order.
    #[unsafe(link_section = "nthbyte_hot")]
    unsafe fn return_run(
        &mut self,
        page: *mut Page,
        first: *mut Block,
        last: *mut Block,
        count: usize,
        order: Order,
        table: ArenaTable,
    ) {
        // SAFETY: by the caller; a block's page is in use, and its class refers to it.
        unsafe {
            let class = &mut self.classes[Page::class_of(first)];
            class.used -= count;
            let (queue, fresh) = if (*page).sampled {
                let group = &mut self.sampled[(*page).class as usize];
                (&mut group.queue, &mut group.fresh)
            } else {
                (&mut class.queue, &mut class.fresh)
            };
            (*page).push_local(first, last, count, order);
            // The fresh page for sampled blocks is kept for the next sample.
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
