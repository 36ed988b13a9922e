//! Arenas: 2 MiB of memory at a multiple of 2 MiB, cut into pages.
//!
//! Arenas with free pages are queued by their number of free pages. A page is taken from the fullest arena, so that
//! the emptiest arena can become empty and be unmapped. But a *dirty* page, which was used before and still has
//! memory behind it, is always preferred to a clean page.
//!
//! Dirty pages are retained because the heap probably needs them again: [`retention`] says how many, and until when.

mod collapse;
mod header;
mod queues;
mod retention;
mod table;

pub use self::header::{HEADER_BYTES, is_whole, pages_of};
pub use self::retention::SMALLEST_DEMAND;
pub use self::table::ArenaTable;

use self::collapse::Collapses;
use self::header::{Arena, Backing};
use self::queues::Queues;
use self::retention::Retention;
use crate::config::HugePages;
use crate::geometry::{
    ADDRESS_BITS, ARENA_BITS, ARENA_SIZE, FIRST_PAGE_HEADER, PAGE_HEADER, PAGE_SIZE,
    PAGES_PER_ARENA,
};
use crate::os;
use crate::page::Page;
use core::ops::Range;
use core::ptr::null_mut;

/// After the system refused an arena, this many requests do not ask it again. At the limit of memory each request
/// would cost two system calls, and the fallback would still serve the block.
const BACK_OFF_REQUESTS: u32 = 64;
/// An arena is collapsed when at most this part of the heap's pages (a 32nd) is free in it. This limits the memory
/// that a partly filled arena wastes. From 64 MiB on, the limit is a whole arena, which is a huge page from the start.
const WASTE_DIVISOR: usize = 32;
/// Before an arena is collapsed, the memory of this many pages is allocated at a time. This takes half as long as a
/// page fault for each OS page.
const POPULATE_PAGES: u32 = 16;
/// A full arena is collapsed if at most this many bytes of it were never touched. (Pages of classes with few
/// allocations may take long to fill.)
const MAX_UNTOUCHED: usize = ARENA_SIZE / 32;
/// Number of full arenas that are tried in the search for one to collapse. The arena that became full
/// last is tried first.
const COLLAPSE_CANDIDATES: usize = 4;

const _: () = assert!(PAGES_PER_ARENA.is_multiple_of(POPULATE_PAGES));

/// All arenas of a heap.
pub struct Arenas {
    /// Arenas with free pages, some of them dirty.
    dirty_arenas: Queues,
    /// Arenas with free pages, none of them dirty.
    clean_arenas: Queues,
    /// Arenas of ordinary OS pages that have no free page.
    full_arenas: Queues,
    collapses: Collapses,
    pub huge_pages: HugePages,
    /// With [`HugePages::Thp`]: arenas have ordinary pages while there are fewer arenas than this.
    huge_from: usize,
    /// Whether the hugetlb pool was empty when a huge page was requested from it.
    pub pool_was_empty: bool,
    /// Number of requests during which the system is not asked for an arena.
    back_off: u32,
    /// The range of all present and past arenas, as arena numbers (address >> [`ARENA_BITS`]).
    span: Range<usize>,
    /// The preferred address of the next arena: right below the last one, as the kernel would choose
    /// it too.
    hint: *mut u8,
    /// Number of arenas that are mapped now.
    pub count: usize,
    /// The largest `count` until now.
    peak_count: usize,
    /// Number of pages in use.
    pub pages_in_use: usize,
    retention: Retention,
}

impl Arenas {
    pub const fn new(huge_pages: HugePages, huge_from: usize) -> Self {
        Self {
            dirty_arenas: Queues::new(),
            clean_arenas: Queues::new(),
            full_arenas: Queues::new(),
            collapses: Collapses::new(),
            huge_pages,
            huge_from,
            pool_was_empty: false,
            back_off: 0,
            span: 0..0,
            hint: null_mut(),
            count: 0,
            peak_count: 0,
            pages_in_use: 0,
            retention: Retention::new(),
        }
    }

    /// Returns an empty page, and the number of bytes at its start that the page must not use; `None` if there is no
    /// memory.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn acquire(&mut self, table: ArenaTable) -> Option<(*mut Page, usize)> {
        if self.dirty_arenas.is_empty() && self.clean_arenas.is_empty() {
            if self.back_off > 0 {
                self.back_off -= 1;
                return None;
            }
            self.add_arena(table)?;
        }
        // SAFETY: arenas in the queues are mapped, and only this type uses their headers.
        unsafe {
            let is_clean = self.dirty_arenas.is_empty();
            let (fullest, pages) = if is_clean {
                let arena = self.clean_arenas.fullest();
                (arena, (*arena).free)
            } else {
                self.retention.used();
                let arena = self.dirty_arenas.fullest();
                (arena, (*arena).dirty)
            };
            let index = pages.trailing_zeros();
            self.unlink(fullest);
            (*fullest).free &= !(1 << index);
            (*fullest).dirty &= !(1 << index);
            if (*fullest).backing == Backing::CollapseSoon {
                self.collapse_or_populate(fullest, is_clean.then_some(index));
            }
            self.link(fullest);
            let page = Arena::base(fullest).add(index as usize * PAGE_SIZE);
            self.pages_in_use += 1;
            let reserved = if index == 0 {
                FIRST_PAGE_HEADER
            } else {
                PAGE_HEADER
            };
            Some((page.cast(), reserved))
        }
    }

    /// Takes a page back.
    ///
    /// # Safety
    /// The page came from [`Arenas::acquire`] and is empty.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn release(&mut self, page: *mut Page, table: ArenaTable) {
        let arena = Arena::of(page.cast());
        // SAFETY: the page lies in a mapped arena, since it came from here.
        unsafe {
            let index = (page.addr() % ARENA_SIZE) / PAGE_SIZE;
            self.unlink(arena);
            (*arena).free |= 1 << index;
            (*arena).dirty |= 1 << index;
            self.link(arena);
        }
        self.pages_in_use -= 1;
        self.retention.freed();
        self.purge_above_limit(table);
    }

    /// The range of the numbers of all present and past arenas.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Whether an address lies in one of the arenas. Any number is allowed: only numbers of the span are looked up in the
    /// table, of which other parts may not be mapped.
    pub fn hold(&self, address: usize, table: ArenaTable) -> bool {
        self.span.contains(&(address >> ARENA_BITS))
            && table.holds(core::ptr::without_provenance_mut(address))
    }

    /// Removes all arenas from a table.
    ///
    /// # Safety
    /// `table` is the table of these arenas.
    pub unsafe fn clear_table(&self, table: ArenaTable) {
        for number in self.span.clone() {
            let base = core::ptr::with_exposed_provenance_mut(number << ARENA_BITS);
            if table.holds(base) {
                // SAFETY: the table is prepared for an arena that is in it.
                unsafe { table.set(base, false) };
            }
        }
    }

    /// Copies the table to another place that is filled with zeroes. Calls `visit` for each page in
    /// use.
    ///
    /// # Safety
    /// `from` is the table of these arenas.
    pub unsafe fn copy_table(
        &self,
        from: ArenaTable,
        to: ArenaTable,
        mut visit: impl FnMut(*mut Page),
    ) {
        for number in self.span.clone() {
            let base: *mut u8 = core::ptr::with_exposed_provenance_mut(number << ARENA_BITS);
            if !from.holds(base) {
                continue;
            }
            // SAFETY: the arenas in the table are mapped.
            let mut used = unsafe {
                to.set(base, true);
                !(*Arena::of(base)).free
            };
            while used != 0 {
                let index = used.trailing_zeros() as usize;
                used &= used - 1;
                visit(base.wrapping_add(index * PAGE_SIZE).cast());
            }
        }
    }

    /// Collapses one full arena of ordinary OS pages into a huge page, if that is wanted and useful now. It takes about
    /// a millisecond and very little memory. Returns whether an arena was found.
    pub fn collapse_full_arena(&mut self) -> bool {
        if self.huge_pages != HugePages::Thp
            || !self.collapses.are_possible()
            || self.collapses.are_paused()
        {
            return false;
        }
        let mut arena = self.full_arenas.heads[0];
        // SAFETY: arenas in the queues are mapped.
        unsafe {
            for _ in 0..COLLAPSE_CANDIDATES {
                if arena.is_null() {
                    return false;
                }
                if ARENA_SIZE - os::resident(Arena::base(arena)) <= MAX_UNTOUCHED {
                    self.unlink(arena);
                    self.collapses.collapse(arena);
                    self.link(arena);
                    return true;
                }
                arena = (*arena).next;
            }
        }
        false
    }

    /// Collapses an arena if it is full enough, or else populates its next pages. A page was just taken from the arena;
    /// `clean` is its index if it was clean.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    #[cold]
    unsafe fn collapse_or_populate(&mut self, arena: *mut Arena, clean: Option<u32>) {
        // SAFETY: by the caller; the range lies in the arena.
        unsafe {
            let free = (*arena).free.count_ones() as usize;
            if free <= self.max_waste() && !self.collapses.are_paused_at_page() {
                self.collapses.collapse(arena);
            } else if let Some(index) = clean.filter(|index| index.is_multiple_of(POPULATE_PAGES)) {
                let start = Arena::base(arena).add(index as usize * PAGE_SIZE);
                os::populate(start, POPULATE_PAGES as usize * PAGE_SIZE);
            }
        }
    }

    /// Notes that no arena could be mapped, even after all lists were flushed: the next requests do not
    /// try again.
    pub fn back_off(&mut self) {
        self.back_off = BACK_OFF_REQUESTS;
    }

    /// Whether the system is not asked for arenas now.
    pub fn is_backing_off(&self) -> bool {
        self.back_off > 0
    }

    /// The largest number of free pages of an arena that becomes a huge page.
    fn max_waste(&self) -> usize {
        self.count * PAGES_PER_ARENA as usize / WASTE_DIVISOR
    }

    #[cold]
    fn add_arena(&mut self, table: ArenaTable) -> Option<()> {
        let (base, backing) = self.map_arena()?;
        // SAFETY: the address is checked first.
        let is_usable = base.addr() >> ADDRESS_BITS == 0 && unsafe { table.prepare(base) };
        if !is_usable {
            // SAFETY: just mapped; nothing refers to it.
            unsafe { os::unmap(base, ARENA_SIZE) };
            return None;
        }
        self.hint = base.wrapping_sub(ARENA_SIZE);
        self.count += 1;
        self.peak_count = self.peak_count.max(self.count);
        let arena = Arena::of(base);
        // SAFETY: the arena was just mapped and is writable zeroes; its address was checked.
        unsafe {
            arena.write(Arena {
                next: null_mut(),
                previous: null_mut(),
                free: u128::MAX,
                dirty: 0,
                backing,
            });
            self.link(arena);
            table.set(base, true);
        }
        self.span = extended(&self.span, base.addr() >> ARENA_BITS);
        Some(())
    }

    /// Maps an arena. Returns its address and the kind of its memory.
    fn map_arena(&mut self) -> Option<(*mut u8, Backing)> {
        if self.huge_pages == HugePages::Hugetlb {
            if let Some(base) = os::map_hugetlb(ARENA_SIZE) {
                return Some((base.as_ptr(), Backing::Huge));
            }
            self.pool_was_empty = true;
        }
        let base = os::map_aligned(ARENA_SIZE, self.hint)?.as_ptr();
        let backing = self.next_backing();
        // SAFETY: just mapped.
        unsafe { os::advise_huge(base, ARENA_SIZE, backing == Backing::Huge) };
        Some((base, backing))
    }

    /// The kind of memory of the next arena that is not from the pool of huge pages.
    fn next_backing(&self) -> Backing {
        if self.huge_pages != HugePages::Thp || self.count < self.huge_from {
            Backing::Ordinary
        } else if self.count + 1 < self.peak_count {
            // The heap was larger before, so the wasted memory does not increase the peak. Of the last arena that it had
            // then, part was perhaps never touched.
            Backing::Huge
        } else if self.max_waste() < PAGES_PER_ARENA as usize && self.collapses.are_possible() {
            Backing::CollapseSoon
        } else {
            Backing::Huge
        }
    }

    /// The queues that an arena belongs to; `None` if it is full and huge.
    fn queues_of(&mut self, arena: &Arena) -> Option<&mut Queues> {
        match (arena.free, arena.dirty) {
            (0, _) if arena.backing == Backing::Huge => None,
            (0, _) => Some(&mut self.full_arenas),
            (_, 0) => Some(&mut self.clean_arenas),
            _ => Some(&mut self.dirty_arenas),
        }
    }

    /// Queues an arena.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    unsafe fn link(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller.
        unsafe {
            if let Some(queues) = self.queues_of(&*arena) {
                queues.link(arena);
            }
        }
    }

    /// Removes an arena from its queue. Call this before any change to the arena's header.
    ///
    /// # Safety
    /// The arena was linked, and has not changed since.
    unsafe fn unlink(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller.
        unsafe {
            if let Some(queues) = self.queues_of(&*arena) {
                queues.unlink(arena);
            }
        }
    }
}

/// A range of arena numbers with one more number in it.
fn extended(span: &Range<usize>, number: usize) -> Range<usize> {
    if span.is_empty() {
        number..number + 1
    } else {
        span.start.min(number)..span.end.max(number + 1)
    }
}

#[cfg(test)]
mod tests;
