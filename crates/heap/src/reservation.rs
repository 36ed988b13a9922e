//! The address space of a heap: its state and the arena table.
//!
//! The table has a byte for each 2 MiB of all addresses that a program may have: 64 MiB. They cost address space only.
//! But where that is limited (`ulimit -v`), they would be taken from the program. Under a low limit, only some parts
//! of the table are mapped: those for the addresses within 512 GiB of the mappings that the process has now. The kernel
//! puts new mappings beside the old ones, and the limit keeps them near. Other parts of the table are never looked up,
//! because no block has such an address; what else may be mapped at their place does not matter.
//!
//! A limit is low in two cases:
//!
//! - The hard limit is below 512 GiB. The process cannot raise it.
//! - The soft limit is below 256 MiB, so that the whole table would take more than a quarter of it. The process may
//!   raise it, but hardly two thousand times.
//!
//! Under a higher limit, the parts are mapped only if there are too few addresses left for the whole table.
//!
//! What remains: the limit of a process whose table is in parts rises above 512 GiB, and the process then maps so much
//! that new mappings lie farther away. The heap touches a part of the table that is not mapped then, and the process
//! ends (SIGSEGV); or it changes a byte of another mapping. That takes a hard limit that a privileged process has
//! raised (`CAP_SYS_RESOURCE`), or a soft limit that was tiny, or nearly used up, when the heap was made.

use crate::arena::ArenaTable;
use crate::geometry::{ADDRESS_BITS, ARENA_BITS, SMALLEST_OS_PAGE, STATE_SIZE, TABLE_SIZE};
use crate::os::{self, AddressLimit};
use core::ptr::NonNull;

const PAGES: usize = TABLE_SIZE / SMALLEST_OS_PAGE;
/// The addresses that one page of the table covers: 8 GiB.
const COVERED_BITS: u32 = ARENA_BITS + SMALLEST_OS_PAGE.trailing_zeros();
/// Mappings may appear up to this many pages of the table away from the present ones: 512 GiB.
const MARGIN: usize = 64;
/// The same in bytes. A process that may have fewer addresses has no mapping farther away.
const MARGIN_SIZE: u64 = (MARGIN as u64) << COVERED_BITS;
/// A process that may have fewer addresses than this, in bytes, misses the addresses of the whole table: more than a quarter.
const FEW_ADDRESSES: u64 = 4 * TABLE_SIZE as u64;
/// Addresses for the table, far from those that the kernel chooses itself.
const PLACES: [usize; 4] = [1 << 37, 1 << 38, 3 << 37, 1 << 39];

const _: () = {
    // Beyond executables that are mapped low, and below what the kernel chooses (from 2^46 on).
    let mut index = 0;
    while index < PLACES.len() {
        assert!(PLACES[index] >= 1 << 37 && PLACES[index] + STATE_SIZE + TABLE_SIZE < 1 << 40);
        index += 1;
    }
};

/// Maps zeroes for the state, and behind it the table, or the parts of it that are needed. `None` if there is no
/// address space.
pub fn reserve() -> Option<NonNull<u8>> {
    match os::address_limit() {
        Some(limit) if os::page_size() == SMALLEST_OS_PAGE => {
            if is_low(limit) {
                reserve_parts().or_else(reserve_whole)
            } else {
                reserve_whole().or_else(reserve_parts)
            }
        }
        _ => reserve_whole(),
    }
}

/// The state, and the whole table. Most of the table can only be read: see [`ArenaTable`].
fn reserve_whole() -> Option<NonNull<u8>> {
    let base = os::map_readable(STATE_SIZE + TABLE_SIZE)?;
    // SAFETY: just mapped.
    unsafe {
        let table = base.as_ptr().add(STATE_SIZE);
        let near = ArenaTable::at(table).near();
        let is_writable = os::make_writable(base.as_ptr(), STATE_SIZE)
            && os::make_writable(table.add(near.start), near.len());
        if !is_writable {
            os::unmap(base.as_ptr(), STATE_SIZE + TABLE_SIZE);
            return None;
        }
    }
    Some(base)
}

/// Whether parts of the table suffice under a limit, as long as nobody raises it by far: see the module.
const fn is_low(limit: AddressLimit) -> bool {
    limit.hard < MARGIN_SIZE || limit.soft < FEW_ADDRESSES
}

fn reserve_parts() -> Option<NonNull<u8>> {
    reserve_parts_at(&PLACES)
}

/// Reserves the parts at the first of the places where nothing is mapped.
fn reserve_parts_at(places: &[usize; PLACES.len()]) -> Option<NonNull<u8>> {
    let mut wanted = Pages([0; PAGES / 64]);
    let mut is_free = [true; PLACES.len()];
    // `free` may be called with null.
    wanted.add_around(0, 1);
    let is_known = os::for_each_mapping(|start, end| {
        wanted.add_around(start, end);
        for (place, is_free) in places.iter().zip(&mut is_free) {
            *is_free &= end <= *place || start >= place + STATE_SIZE + TABLE_SIZE;
        }
    });
    if !is_known {
        return None;
    }
    let place = places.iter().zip(is_free).find(|&(_, is_free)| is_free)?.0;
    let state = os::map_at(*place, STATE_SIZE)?;
    let mut page = 0;
    while let Some((first, last)) = wanted.next_run(page) {
        let offset = first * SMALLEST_OS_PAGE;
        let size = (last - first) * SMALLEST_OS_PAGE;
        if os::map_at(place + STATE_SIZE + offset, size).is_none() {
            wanted.unmap(*place, first);
            return None;
        }
        page = last;
    }
    Some(state)
}

/// A set of pages of the table.
struct Pages([u64; PAGES / 64]);

impl Pages {
    /// Adds the pages for the addresses of a mapping and around it.
    fn add_around(&mut self, start: usize, end: usize) {
        if start >> ADDRESS_BITS != 0 {
            // A mapping of the kernel's.
            return;
        }
        let first = (start >> COVERED_BITS).saturating_sub(MARGIN);
        let last = ((end - 1) >> COVERED_BITS) + MARGIN;
        for page in first..=last.min(PAGES - 1) {
            self.0[page / 64] |= 1 << (page % 64);
        }
    }

    fn holds(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    /// The first run of pages from this one on: its first page, and the page after its last.
    fn next_run(&self, from: usize) -> Option<(usize, usize)> {
        let first = (from..PAGES).find(|&page| self.holds(page))?;
        let last = (first..PAGES).find(|&page| !self.holds(page));
        Some((first, last.unwrap_or(PAGES)))
    }

    /// Unmaps the state and the runs before a page.
    fn unmap(&self, place: usize, before: usize) {
        let address = |offset: usize| core::ptr::with_exposed_provenance_mut(place + offset);
        // SAFETY: mapped by `reserve_parts`, and not in use yet.
        unsafe { os::unmap(address(0), STATE_SIZE) };
        let mut page = 0;
        while let Some((first, last)) = self.next_run(page).filter(|&(first, _)| first < before) {
            let size = (last - first) * SMALLEST_OS_PAGE;
            // SAFETY: as above.
            unsafe { os::unmap(address(STATE_SIZE + first * SMALLEST_OS_PAGE), size) };
            page = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ops::Range;

    /// How many bytes of a range can be written to.
    fn writable(range: Range<usize>) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        let parts = maps.lines().filter_map(|line| {
            let (addresses, rest) = line.split_once(' ')?;
            let (start, end) = addresses.split_once('-')?;
            let start = usize::from_str_radix(start, 16).ok()?.max(range.start);
            let end = usize::from_str_radix(end, 16).ok()?.min(range.end);
            rest.starts_with("rw").then(|| end.saturating_sub(start))
        });
        parts.sum()
    }
    use crate::os::tests::{mapped, one_at_a_time};

    #[test]
    fn the_parts_cover_what_is_mapped_and_little_else() {
        let mut pages = Pages([0; PAGES / 64]);
        let covered = 1usize << COVERED_BITS;
        pages.add_around(100 * covered, 100 * covered + 1);
        pages.add_around(5000 * covered, 5003 * covered);
        pages.add_around(usize::MAX << 20, usize::MAX);
        pages.add_around((PAGES - 1) * covered, PAGES * covered);
        assert_eq!(pages.next_run(0), Some((36, 165)));
        assert_eq!(pages.next_run(165), Some((5000 - MARGIN, 5003 + MARGIN)));
        assert_eq!(pages.next_run(5100), Some((PAGES - 1 - MARGIN, PAGES)));
        assert_eq!(pages.next_run(PAGES), None);
    }

    /// Parts under a limit that may become higher than what they cover are memory that is not mapped.
    #[test]
    fn a_limit_is_low_if_the_parts_suffice_under_it() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        const NONE: u64 = libc::RLIM_INFINITY;
        for (soft, hard, expected) in [
            (100 * MIB, 100 * MIB, true),
            (8 * GIB, 8 * GIB, true),
            (8 * GIB, 512 * GIB - 1, true),
            (8 * GIB, 512 * GIB, false),
            (1024 * GIB, 1024 * GIB, false),
            (8 * GIB, NONE, false),
            (256 * MIB, NONE, false),
            (256 * MIB - 1, NONE, true),
            (100 * MIB, 1024 * GIB, true),
        ] {
            let limit = AddressLimit { soft, hard };
            assert_eq!(is_low(limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn without_a_limit_the_table_is_whole_and_little_of_it_can_be_written() {
        let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux");
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max address space"));
        if !line.is_some_and(|line| line.contains("unlimited")) {
            eprintln!("not tested: the address space is limited");
            return;
        }
        let base = reserve().expect("address space").addr().get();
        let end = base + STATE_SIZE + TABLE_SIZE;
        let all = mapped(base..end);
        assert!(all.windows(2).all(|two| two[0].1 == two[1].0));
        assert_eq!((all[0].0, all[all.len() - 1].1), (base, end));
        assert!(writable(base..end) <= STATE_SIZE + TABLE_SIZE / 64);
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages = statm.split(' ').next().map(str::parse::<usize>);
        assert!(pages.unwrap().unwrap() < 1 << 28, "less than a TiB");
    }

    #[test]
    fn a_place_where_something_is_mapped_is_left_alone() {
        let _lock = one_at_a_time();
        let places = [8, 9, 10, 11].map(|number| number << 40);
        let size = STATE_SIZE + TABLE_SIZE;
        let page = os::page_size();
        let place = || reserve_parts_at(&places).map(|base| base.addr().get());
        // Right before the first place, right after it, and in the last page of the third one.
        for address in [places[0] - page, places[0] + size, places[2] + size - page] {
            os::map_at(address, page).expect("nobody maps there");
        }
        assert_eq!(place(), Some(places[0]));
        assert_eq!(place(), Some(places[1]));
        assert_eq!(place(), Some(places[3]));
        assert_eq!(place(), None);
    }

    #[test]
    fn parts_are_unmapped_when_the_next_one_cannot_be_mapped() {
        let _lock = one_at_a_time();
        let place = 12 << 40;
        let mut pages = Pages([0; PAGES / 64]);
        os::map_at(place, STATE_SIZE).expect("nobody maps there");
        let parts = [10..20, 30..40, 50..60].map(|run: core::ops::Range<usize>| {
            run.clone()
                .for_each(|page| pages.0[page / 64] |= 1 << (page % 64));
            let start = place + STATE_SIZE + run.start * SMALLEST_OS_PAGE;
            let size = run.len() * SMALLEST_OS_PAGE;
            os::map_at(start, size).expect("nobody maps there");
            (start, start + size)
        });
        let whole = place..place + STATE_SIZE + TABLE_SIZE;
        assert_eq!(mapped(whole.clone()).len(), 4);
        pages.unmap(place, 50);
        assert_eq!(mapped(whole), parts[2..]);
    }

    /// Looks up every address that this process has mapped, and blocks that it maps afterwards.
    #[test]
    fn a_table_in_parts_can_be_looked_up() {
        let _lock = one_at_a_time();
        let base = reserve_parts().expect("there is room");
        let table = crate::arena::ArenaTable::at(base.as_ptr().wrapping_add(STATE_SIZE));
        let own = base.addr().get()..base.addr().get() + STATE_SIZE + TABLE_SIZE;
        assert!(!table.holds(core::ptr::null_mut()));
        let mut mappings = 0;
        assert!(os::for_each_mapping(|start, end| {
            // No block lies between the parts of the table.
            if start >> ADDRESS_BITS == 0 && !own.contains(&start) {
                for address in [start, end - 1] {
                    assert!(!table.holds(core::ptr::without_provenance_mut(address)));
                }
                mappings += 1;
            }
        }));
        assert!(mappings > 10);
        let arena = os::map_aligned(1 << ARENA_BITS, core::ptr::null_mut()).expect("an arena");
        // SAFETY: the arena lies below 2^ADDRESS_BITS.
        unsafe { table.set(arena.as_ptr(), true) };
        assert!(table.holds(arena.as_ptr()));
    }
}
