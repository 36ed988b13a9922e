//! Memory that is given back, as the whole process sees it: the only test of this process, for others would be counted too.

#[path = "contract/fixture.rs"]
#[allow(dead_code)]
mod fixture;

use fixture::Fixture;
use nthbyte_heap::{HeapConfig, HugePages};

#[test]
fn memory_goes_back() {
    for huge_pages in [HugePages::Thp, HugePages::Off] {
        let heap = Fixture::new(HeapConfig {
            huge_pages,
            huge_pages_from: 0,
            ..HeapConfig::default()
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
