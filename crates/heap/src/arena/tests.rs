//! Decisions about arenas that depend on the system, or on the size of a large heap.

use super::*;
use crate::geometry::{SMALLEST_OS_PAGE, TABLE_SIZE};

fn table() -> ArenaTable {
    ArenaTable::at(os::map(TABLE_SIZE).expect("address space").as_ptr())
}

#[test]
fn after_a_refusal_the_system_is_not_asked_for_a_while() {
    let table = table();
    let mut arenas = Arenas::new(HugePages::Off, 0);
    assert!(!arenas.is_backing_off());
    arenas.back_off();
    for _ in 0..BACK_OFF_REQUESTS {
        assert!(arenas.is_backing_off());
        assert!(arenas.acquire(table).is_none());
    }
    assert!(!arenas.is_backing_off());
    assert!(arenas.acquire(table).is_some());
}

#[test]
fn the_next_arena_has_the_memory_that_suits_the_heap() {
    let mut arenas = Arenas::new(HugePages::Off, 2);
    let mut of_size = |kind, count, peak| {
        (arenas.huge_pages, arenas.count, arenas.peak_count) = (kind, count, peak);
        (arenas.max_waste(), arenas.next_backing())
    };
    // A small heap, and a user who wants no huge pages.
    assert!(of_size(HugePages::Thp, 1, 1) == (4, Backing::Ordinary));
    assert!(of_size(HugePages::Off, 40, 40) == (160, Backing::Ordinary));
    // An arena of which a 32nd of the heap is free is collapsed; from 64 MiB on this is a whole arena.
    assert!(of_size(HugePages::Thp, 2, 2) == (8, Backing::CollapseSoon));
    assert!(of_size(HugePages::Thp, 31, 31) == (124, Backing::CollapseSoon));
    assert!(of_size(HugePages::Thp, 32, 32) == (128, Backing::Huge));
    // A heap that was larger before, whose last arena may have been nearly empty.
    assert!(of_size(HugePages::Thp, 2, 4) == (8, Backing::Huge));
    assert!(of_size(HugePages::Thp, 2, 3) == (8, Backing::CollapseSoon));
    // The kernel has refused to collapse arenas.
    (arenas.count, arenas.peak_count) = (2, 2);
    arenas.collapses.refusals_left = 0;
    assert!(arenas.next_backing() == Backing::Huge);
}

#[test]
fn a_full_arena_is_collapsed_when_nearly_all_of_it_was_touched() {
    let table = table();
    let mut arenas = Arenas::new(HugePages::Thp, usize::MAX);
    let pages: Vec<_> = (0..PAGES_PER_ARENA)
        .map(|_| arenas.acquire(table).expect("memory").0)
        .collect();
    let base = Arena::base(Arena::of(pages[0].cast()));
    assert!(
        pages
            .iter()
            .all(|page| page.addr() - base.addr() < ARENA_SIZE)
    );
    let touch = |from: usize, to: usize| {
        for offset in (from..to).step_by(SMALLEST_OS_PAGE) {
            // SAFETY: the arena is mapped, and its header is on the first page.
            unsafe { base.add(offset + SMALLEST_OS_PAGE - 1).write(1) };
        }
    };
    assert!(!arenas.collapse_full_arena(), "not touched");
    touch(0, ARENA_SIZE / 2);
    assert!(!arenas.collapse_full_arena(), "half of it was not touched");
    touch(ARENA_SIZE / 2, ARENA_SIZE - (64 << 10));

    arenas.huge_pages = HugePages::Off;
    assert!(!arenas.collapse_full_arena(), "not wanted");
    arenas.huge_pages = HugePages::Thp;
    let refusals_left = std::mem::take(&mut arenas.collapses.refusals_left);
    assert!(!arenas.collapse_full_arena(), "refused too often");
    arenas.collapses.refusals_left = refusals_left;
    arenas.collapses.pause = 0..u64::MAX;
    assert!(!arenas.collapse_full_arena(), "the last one was slow");
    arenas.collapses.pause = 0..0;

    assert!(arenas.collapse_full_arena());
    assert!(!arenas.collapse_full_arena(), "once is enough");
}

#[test]
fn the_span_holds_every_arena() {
    assert_eq!(extended(&(0..0), 7), 7..8);
    assert_eq!(extended(&(7..8), 5), 5..8);
    assert_eq!(extended(&(5..8), 8), 5..9);
    assert_eq!(extended(&(5..9), 6), 5..9);
}
