//! Memory that is given back, joined to huge pages, or not to be had.

use nthbyte_heap::{Config, Heap, HugePages};

use super::fixture::Fixture;

#[test]
fn memory_goes_back() {
    for huge_pages in [HugePages::Transparent, HugePages::Off] {
        let heap = Fixture::new(Config {
            huge_pages,
            huge_pages_from: 0,
            ..Config::default()
        });
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let blocks: Vec<*mut u8> = (0..2_000_000)
            .map(|number| {
                let size = 16 + number % 200;
                let block = heap.malloc(size);
                // SAFETY: the block has `size` bytes.
                unsafe { block.write_bytes(1, size) };
                block
            })
            .collect();
        let full = heap.statistics();
        assert!(full.reserved > 200 << 20 && resident() > before + (200 << 20));
        blocks.into_iter().for_each(|block| heap.free(block));
        let empty = heap.statistics();
        assert_eq!(empty.in_use, 0);
        assert!(
            empty.reserved <= 64 << 20,
            "{} bytes reserved",
            empty.reserved
        );
        assert!(resident() < before + (64 << 20));
    }
}

#[test]
fn joined_pages_keep_their_contents() {
    for (huge_pages, there_is_something) in
        [(HugePages::Transparent, true), (HugePages::Off, false)]
    {
        let heap = Fixture::new(Config {
            huge_pages,
            ..Config::default()
        });
        // SAFETY: as in `malloc`.
        let join = || unsafe { Heap::join_pages(heap.heap) };
        assert!(!join(), "nothing is full");
        for round in 1..=2 {
            let fill = |number: usize| (number % 251) as u8 ^ round;
            let blocks: Vec<_> = (0..40_000)
                .map(|number| {
                    let block = heap.malloc(256);
                    // SAFETY: the block has 256 bytes.
                    unsafe { block.write_bytes(fill(number), 256) };
                    block
                })
                .collect();
            // 10 MB are at least four arenas; in the second round they are huge already.
            let joined = (0..10).filter(|_| join()).count();
            assert!(joined < 10);
            assert_eq!(joined > 0, there_is_something && round == 1);
            for (number, block) in blocks.into_iter().enumerate() {
                // SAFETY: as above.
                let bytes = unsafe { core::slice::from_raw_parts(block, 256) };
                assert!(bytes.iter().all(|&byte| byte == fill(number)));
                heap.free(block);
            }
        }
    }
}

#[test]
fn a_growing_heap_wastes_little_for_huge_pages() {
    let heap = Fixture::new(Config {
        huge_pages_from: 0,
        ..Config::default()
    });
    let mut blocks = Vec::new();
    let mut arenas = Vec::new();
    while blocks.len() * 256 < 20 << 20 {
        let block = heap.malloc(256);
        // SAFETY: the block has 256 bytes.
        unsafe { block.write_bytes(blocks.len() as u8, 256) };
        blocks.push(block);
        let arena = block.addr() & !(ARENA - 1);
        if arenas.last() != Some(&arena) {
            arenas.push(arena);
        }
        if blocks.len() % 997 == 0 {
            let resident: usize = arenas.iter().map(|&arena| resident(arena)).sum();
            let used = blocks.len() * 260;
            let more = resident.saturating_sub(used);
            // What is put behind several pages at once is in it.
            let may_be = heap.statistics().reserved / 32 + (320 << 10);
            assert!(more <= may_be, "{more} bytes more than {used}");
        }
    }
    arenas.sort_unstable();
    arenas.dedup();
    assert!(arenas.len() > 8);
    for (number, block) in blocks.into_iter().enumerate() {
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(block, 256) };
        assert!(bytes.iter().all(|&byte| byte == number as u8));
        heap.free(block);
    }
}

const ARENA: usize = 2 << 20;

/// How much of an arena has memory behind it.
fn resident(arena: usize) -> usize {
    let mut pages = [0u8; ARENA / 4096];
    // SAFETY: there is a byte for each page of 4 KiB; they may be larger.
    let asked = unsafe { libc::mincore(arena as *mut _, ARENA, pages.as_mut_ptr()) };
    assert_eq!(asked, 0);
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    pages.iter().filter(|&&page| page & 1 != 0).count() * page
}

#[test]
fn an_empty_pool_of_huge_pages_is_told() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let free_pages = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"));
    let pool_is_empty = free_pages.is_none_or(|number| number.trim() == "0");
    let heap = Fixture::new(Config {
        huge_pages: HugePages::Reserved,
        ..Config::default()
    });
    assert!(!heap.statistics().huge_page_pool_was_empty);
    assert!(!heap.malloc(100).is_null());
    assert_eq!(heap.statistics().huge_page_pool_was_empty, pool_is_empty);
}
