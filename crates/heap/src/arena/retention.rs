//! How much freed memory is retained, and when it is purged.
//!
//! A dirty page costs memory. A purged page costs a page fault for each of its OS pages when it is used again, about
//! 2 µs on a virtual machine: more than all allocations in it. A program that drops many objects often makes as many
//! again. So dirty pages are retained, and purged in three cases:
//!
//! - *The limit*: there are more than [`LIMIT_PAGES`] of them, and more than a quarter of the pages in use.
//! - *Demand*: the fallback is asked for a large block. As many bytes are purged before, so that the process does not
//!   grow for both.
//! - *Decay*: what was not used for a while. The embedder says when: [`Arenas::decay`].

use super::header::{Arena, Backing};
use super::{ArenaTable, Arenas};
use crate::geometry::{ARENA_SIZE, FIRST_PAGE_HEADER, PAGE_SIZE, PAGES_PER_ARENA};
use crate::os;

/// This many dirty pages are always below the limit: 32 MiB, from measurements (docs/fast-path.md).
const LIMIT_PAGES: usize = (32 << 20) / PAGE_SIZE;
/// Demand leaves this many dirty pages: 4 MiB.
const LEFT_BY_DEMAND: usize = (4 << 20) / PAGE_SIZE;
/// Smaller blocks of the fallback are no demand: they rarely make the process grow, and a purge takes two system calls
/// or more.
pub const SMALLEST_DEMAND: usize = 256 << 10;

/// The number of dirty pages, now and lately.
pub struct Retention {
    dirty: usize,
    /// The smallest number since the last decay: that many were not needed.
    least: usize,
    /// The number that the last purge left if it could not go below the limit; 0 if it could.
    stuck: usize,
}

impl Retention {
    /// No dirty page.
    pub const fn new() -> Self {
        Self {
            dirty: 0,
            least: 0,
            stuck: 0,
        }
    }

    /// A dirty page is taken into use, or purged.
    pub fn used(&mut self) {
        self.remove(1);
    }

    /// A page in use becomes a dirty one.
    pub const fn freed(&mut self) {
        self.dirty += 1;
    }

    fn remove(&mut self, pages: usize) {
        self.dirty -= pages;
        self.least = self.least.min(self.dirty);
    }
}

impl Arenas {
    /// Purges dirty pages if there are more than the limit, until half of the limit is left.
    ///
    /// Pages in huge arenas that are mostly in use cannot be purged. Where that keeps their number above the limit, the
    /// next try comes when there are an eighth more: each try looks at all arenas with dirty pages.
    #[inline]
    pub(super) fn purge_above_limit(&mut self, table: ArenaTable) {
        let limit = LIMIT_PAGES.max(self.pages_in_use / 4);
        let stuck = self.retention.stuck;
        if self.retention.dirty > limit.max(stuck + stuck / 8) {
            self.purge(limit / 2, table);
            let left = self.retention.dirty;
            self.retention.stuck = if left > limit { left } else { 0 };
        }
    }

    /// Purges dirty pages because the process needs `bytes` elsewhere.
    #[cold]
    pub fn purge_for(&mut self, bytes: usize, table: ArenaTable) {
        let wanted = bytes.div_ceil(PAGE_SIZE);
        let keep = self
            .retention
            .dirty
            .saturating_sub(wanted)
            .max(LEFT_BY_DEMAND);
        self.purge(keep, table);
    }

    /// Purges half of the dirty pages that were not needed since the last call. Returns whether there were any.
    pub fn decay(&mut self, table: ArenaTable) -> bool {
        let unneeded = self.retention.least;
        self.purge(self.retention.dirty - unneeded.div_ceil(2), table);
        self.retention.least = self.retention.dirty;
        unneeded > 0
    }

    /// Purges dirty pages until `keep` are left: first empty arenas, then dirty pages of the emptiest arenas. A huge
    /// page is split only if more than half of it is free.
    #[cold]
    fn purge(&mut self, keep: usize, table: ArenaTable) {
        if self.retention.dirty <= keep {
            return;
        }
        for queue in (0..PAGES_PER_ARENA as usize).rev() {
            let mut arena = self.dirty_arenas.heads[queue];
            while !arena.is_null() && self.retention.dirty > keep {
                // SAFETY: arenas in the queues are mapped; `next` is read before the arena may be unmapped.
                unsafe {
                    let next = (*arena).next;
                    if (*arena).free == u128::MAX {
                        self.retention.remove((*arena).dirty.count_ones() as usize);
                        self.unlink(arena);
                        self.count -= 1;
                        table.set(Arena::base(arena), false);
                        os::unmap(Arena::base(arena), ARENA_SIZE);
                    } else if (*arena).backing != Backing::Huge
                        || queue as u32 >= PAGES_PER_ARENA / 2
                    {
                        self.unlink(arena);
                        self.purge_dirty_pages(arena);
                        self.link(arena);
                    }
                    arena = next;
                }
            }
        }
    }

    /// # Safety
    /// The arena is mapped and in no queue.
    unsafe fn purge_dirty_pages(&mut self, arena: *mut Arena) {
        // SAFETY: dirty pages are empty; the part of the first page that contains the arena's header
        // is not purged.
        unsafe {
            let mut dirty = (*arena).dirty;
            self.retention.remove(dirty.count_ones() as usize);
            (*arena).dirty = 0;
            while dirty != 0 {
                let from = dirty.trailing_zeros();
                let pages = (dirty >> from).trailing_ones();
                let run = if pages == PAGES_PER_ARENA {
                    u128::MAX
                } else {
                    ((1 << pages) - 1) << from
                };
                dirty &= !run;
                let skip = if from == 0 { FIRST_PAGE_HEADER } else { 0 };
                let start = Arena::base(arena).add(from as usize * PAGE_SIZE + skip);
                os::purge(start, pages as usize * PAGE_SIZE - skip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HugePages;
    use crate::geometry::TABLE_SIZE;
    use crate::page::Page;

    /// The pages of an arena.
    type Pages = Vec<*mut Page>;

    /// Acquires all pages of this many new arenas.
    fn fill(arenas: &mut Arenas, table: ArenaTable, number: usize, backing: Backing) -> Vec<Pages> {
        let mut page = |_| {
            let (page, _) = arenas.acquire(table).unwrap();
            // SAFETY: the arena is mapped. The kind determines only the queue of a full arena, and this one is full
            // after its last page at the earliest.
            unsafe {
                let arena = Arena::of(page.cast());
                if (*arena).free.count_ones() == PAGES_PER_ARENA - 1 {
                    (*arena).backing = backing;
                }
            }
            page
        };
        let mut pages = |_| (0..PAGES_PER_ARENA).map(&mut page).collect();
        (0..number).map(&mut pages).collect()
    }

    fn release(arenas: &mut Arenas, table: ArenaTable, pages: &mut Pages, number: usize) {
        for page in pages.drain(..number) {
            // SAFETY: acquired, and not used.
            unsafe { arenas.release(page, table) };
        }
    }

    /// Dirty pages of huge arenas that are mostly in use cannot be purged. While there are more of them than the limit,
    /// other pages are purged each time that there are an eighth more, and not at each release.
    #[test]
    fn a_purge_that_cannot_reach_the_limit_is_tried_again_after_an_eighth_more() {
        let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
        let mut arenas = Arenas::new(HugePages::Off, 0);
        let mut huge = fill(&mut arenas, table, 36, Backing::Huge);
        let mut other = fill(&mut arenas, table, 8, Backing::Ordinary);
        let least = LIMIT_PAGES + 1;
        for (at, pages) in huge.iter_mut().enumerate() {
            let number = 60.min(least.saturating_sub(at * 60));
            release(&mut arenas, table, pages, number);
        }
        // One more than the limit, and none can be purged.
        assert_eq!(arenas.retention.dirty, least);
        let eighth = least / 8;
        for arena in 0..2 {
            // Most of an arena each, and then the rest.
            release(&mut arenas, table, &mut other[arena * 2], 127);
            release(&mut arenas, table, &mut other[arena * 2 + 1], 127);
            release(&mut arenas, table, &mut other[4], eighth - 254);
            assert_eq!(arenas.retention.dirty, least + eighth, "not tried before");
            release(&mut arenas, table, &mut other[4], 1);
            assert_eq!(
                arenas.retention.dirty, least,
                "tried, and all others purged"
            );
        }
        // With ten fewer the limit can be reached at the next try. From then on it holds again.
        for _ in 0..10 {
            arenas.acquire(table).unwrap();
        }
        let fewer = least - 10;
        release(&mut arenas, table, &mut other[5], 127);
        release(&mut arenas, table, &mut other[6], 127);
        release(&mut arenas, table, &mut other[7], eighth + 10 - 254);
        assert_eq!(arenas.retention.dirty, least + eighth, "not tried before");
        release(&mut arenas, table, &mut other[7], 1);
        assert_eq!(arenas.retention.dirty, fewer);
        release(&mut arenas, table, &mut other[7], LIMIT_PAGES - fewer);
        assert_eq!(arenas.retention.dirty, LIMIT_PAGES);
        release(&mut arenas, table, &mut other[7], 1);
        assert_eq!(arenas.retention.dirty, fewer, "tried at the limit");
    }
    /// Acquires all pages of so many arenas, and releases half of each.
    fn half_dirty(arenas: &mut Arenas, table: ArenaTable, number: usize) -> Vec<Pages> {
        let mut all = fill(arenas, table, number, Backing::Ordinary);
        for pages in &mut all {
            release(arenas, table, pages, PAGES_PER_ARENA as usize / 2);
        }
        all
    }

    #[test]
    fn demand_leaves_four_mebibytes() {
        let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
        let mut arenas = Arenas::new(HugePages::Off, 0);
        let half = PAGES_PER_ARENA as usize / 2;
        half_dirty(&mut arenas, table, 10);
        assert_eq!(arenas.retention.dirty, 10 * half);
        // All dirty pages of one arena.
        arenas.purge_for(1, table);
        assert_eq!(arenas.retention.dirty, 9 * half);
        arenas.purge_for(1 << 40, table);
        assert_eq!(arenas.retention.dirty * PAGE_SIZE, 4 << 20);
    }

    #[test]
    fn a_huge_page_is_split_if_more_than_half_of_it_is_free() {
        let half = PAGES_PER_ARENA as usize / 2;
        for (freed, left) in [(half, half), (half + 1, 0)] {
            let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
            let mut arenas = Arenas::new(HugePages::Off, 0);
            let mut pages = fill(&mut arenas, table, 1, Backing::Huge);
            release(&mut arenas, table, &mut pages[0], freed);
            arenas.purge(0, table);
            assert_eq!(arenas.retention.dirty, left);
        }
    }

    #[test]
    fn at_the_limit_half_of_it_is_purged() {
        let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
        let mut arenas = Arenas::new(HugePages::Off, 0);
        let half = PAGES_PER_ARENA as usize / 2;
        let mut all = half_dirty(&mut arenas, table, LIMIT_PAGES / half);
        assert_eq!(arenas.retention.dirty, LIMIT_PAGES);
        release(&mut arenas, table, &mut all[0], 1);
        let left = arenas.retention.dirty;
        assert!(left <= LIMIT_PAGES / 2 && left > LIMIT_PAGES / 2 - half);
    }

    #[test]
    fn a_quarter_of_the_pages_in_use_is_below_the_limit() {
        let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
        let mut arenas = Arenas::new(HugePages::Off, 0);
        let mut all = fill(&mut arenas, table, 100, Backing::Ordinary);
        // A fifth of all pages is a quarter of the others.
        let fifth = 100 * PAGES_PER_ARENA as usize / 5;
        let most = PAGES_PER_ARENA as usize / 2;
        for pages in &mut all[..fifth / most] {
            release(&mut arenas, table, pages, most);
        }
        assert_eq!(arenas.retention.dirty, fifth);
        release(&mut arenas, table, &mut all[99], 1);
        assert!(arenas.retention.dirty < fifth);
    }

    #[test]
    fn a_purge_that_reaches_the_limit_exactly_is_tried_again_at_once() {
        let table = ArenaTable::at(os::map(TABLE_SIZE).unwrap().as_ptr());
        let mut arenas = Arenas::new(HugePages::Off, 0);
        let mut huge = fill(&mut arenas, table, 36, Backing::Huge);
        let mut other = fill(&mut arenas, table, 1, Backing::Ordinary);
        for (at, pages) in huge.iter_mut().enumerate() {
            let number = 60.min(LIMIT_PAGES.saturating_sub(at * 60));
            release(&mut arenas, table, pages, number);
        }
        assert_eq!(arenas.retention.dirty, LIMIT_PAGES);
        for _ in 0..2 {
            release(&mut arenas, table, &mut other[0], 1);
            assert_eq!(arenas.retention.dirty, LIMIT_PAGES, "purged at once");
        }
    }
}
