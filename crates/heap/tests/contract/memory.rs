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
