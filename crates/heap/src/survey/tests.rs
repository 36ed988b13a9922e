use super::*;
use crate::config::HeapConfig;
use crate::functions::DomainFunctions;
use crate::observer::{BlockDomain, Fallback};
use core::ffi::c_void;

/// Copies by plain reads: nothing is unmapped in these tests.
struct Plain;

impl Copies for Plain {
    fn copy(&mut self, addresses: &[usize], length: usize, into: &mut [u8]) -> bool {
        for (into, &address) in into.chunks_mut(length).zip(addresses) {
            // SAFETY: the tests give addresses of the heap.
            unsafe {
                into.as_mut_ptr()
                    .copy_from_nonoverlapping(address as *const u8, into.len());
            };
        }
        true
    }
}

struct Nothing;

impl Copies for Nothing {
    fn copy(&mut self, _: &[usize], _: usize, _: &mut [u8]) -> bool {
        false
    }
}

fn survey(heap: *const Heap, most: usize) -> (Survey, Vec<Use>) {
    let mut uses = Vec::new();
    // SAFETY: a heap of this test.
    let found = unsafe { Heap::survey(heap, most, &mut Plain, &mut |of| uses.push(of)) };
    (found.unwrap(), uses)
}

/// A heap with every `kept`th of `count` blocks of `size` bytes in use.
fn fragmented(count: usize, kept: usize, size: usize) -> (*mut Heap, Vec<*mut c_void>) {
    let heap = Heap::create(HeapConfig::default(), [Fallback::LIBC; 2])
        .expect("address space")
        .as_ptr();
    let functions = DomainFunctions::of(BlockDomain::Object);
    let context: *mut c_void = heap.cast();
    // SAFETY: no other thread uses the heap; each block is freed once.
    unsafe {
        let blocks: Vec<_> = (0..count)
            .map(|_| (functions.malloc)(context, size))
            .collect();
        for (at, &block) in blocks.iter().enumerate() {
            if at % kept != 0 {
                (functions.free)(context, block);
            }
        }
        (heap, blocks.into_iter().step_by(kept).collect())
    }
}

#[test]
fn pages_with_few_blocks_are_found() {
    let (heap, kept) = fragmented(200_000, 200, 64);
    let (found, uses) = survey(heap, usize::MAX);
    let in_use = (kept.len() * 64) as u64;
    // Blocks on the class's list count as used: 128 KiB at most.
    assert!(found.blocks >= in_use && found.blocks <= in_use + (128 << 10));
    assert_eq!(
        found.blocks + found.free_blocks + free_of(&found),
        found.pages
    );
    assert!(found.free_blocks > 199_000 / 200 * 199 * 64 * 9 / 10);
    assert!(found.sparse_pages * 10 >= found.pages * 9);
    let sums: [u64; 2] = [
        uses.iter().map(|of| u64::from(of.used) * 64).sum(),
        uses.iter().map(|of| u64::from(of.free) * 64).sum(),
    ];
    assert_eq!(sums, [found.blocks, found.free_blocks]);
    assert!(uses.iter().all(|of| of.block == 64));
    // SAFETY: the heap of this test.
    let arenas = unsafe { arenas(heap, &mut Plain) };
    // SAFETY: no other thread uses the heap.
    let reserved = unsafe { Heap::statistics(heap) }.reserved;
    assert_eq!(arenas.len() * ARENA_SIZE, reserved);
    assert!(arenas.is_sorted_by_key(|range| range.start));
    for &block in &kept {
        assert!(uses.iter().any(|of| of.arena == arena_number(block.addr())));
    }
}

/// # Safety
/// `heap` is a heap.
unsafe fn arenas(heap: *const Heap, copies: &mut dyn Copies) -> Vec<core::ops::Range<usize>> {
    let mut found = Vec::new();
    // SAFETY: by the caller.
    unsafe { Heap::arenas(heap, copies, &mut |range| found.push(range)) };
    found
}

/// Headers, and memory after the last block that was carved.
fn free_of(found: &Survey) -> u64 {
    found.pages - found.blocks - found.free_blocks
}

/// Memory that is not there: an address and the bytes there.
struct FakeMemory {
    parts: Vec<(usize, Vec<u8>)>,
    copied: Vec<(usize, usize)>,
}

impl Copies for FakeMemory {
    fn copy(&mut self, addresses: &[usize], length: usize, into: &mut [u8]) -> bool {
        let mut is_there = true;
        for (into, &address) in into.chunks_mut(length).zip(addresses) {
            self.copied.push((address, length));
            let found = self.parts.iter().find_map(|(start, bytes)| {
                let at = address.checked_sub(*start)?;
                bytes.get(at..at + length)
            });
            match found {
                Some(bytes) => into.copy_from_slice(bytes),
                None => is_there = false,
            }
        }
        is_there
    }
}

/// The header of a page.
fn header(figures: [u16; 4], class: u8, sampled: u8) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_HEADER];
    let offsets = [
        offset_of!(Page, free),
        offset_of!(Page, carved),
        offset_of!(Page, capacity),
        offset_of!(Page, stride),
    ];
    for (offset, figure) in offsets.into_iter().zip(figures) {
        bytes[offset..offset + 2].copy_from_slice(&figure.to_ne_bytes());
    }
    bytes[offset_of!(Page, class)] = class;
    bytes[offset_of!(Page, sampled)] = sampled;
    bytes
}

/// The header of an arena with these free pages, of which these are dirty too.
fn arena_header(free: u128, dirty: u128) -> Vec<u8> {
    // The two sets follow the links of the queues.
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[16..32].copy_from_slice(&free.to_ne_bytes());
    bytes[32..48].copy_from_slice(&dirty.to_ne_bytes());
    assert_eq!(pages_of(bytes.first_chunk().unwrap()), (free, dirty));
    bytes
}

#[test]
fn an_arena_is_added_up() {
    let (base, page) = (5 << ARENA_BITS, PAGE_SIZE as u64);
    // Pages 3 and 100 are in use. A dirty bit of a page in use does not count.
    let used: u128 = 1 << 3 | 1 << 100;
    let of_pages = header([300, 700, 1000, 16], 1, 0);
    let sparse = header([40, 60, 100, 64], 4, 0);
    let mut memory = FakeMemory {
        parts: vec![
            (base + PAGE_HEADER, arena_header(!used, 0b1_1110)),
            (base + 3 * PAGE_SIZE, of_pages),
            (base + 100 * PAGE_SIZE, sparse),
        ],
        copied: Vec::new(),
    };
    let mut survey = Survey::default();
    let mut uses = Vec::new();
    for _ in 0..2 {
        let added = survey.arena(base, &mut memory, &mut |of| uses.push(of));
        assert_eq!(added, Some(()));
    }
    let of_one = Survey {
        pages: 2 * page,
        blocks: 400 * 16 + 20 * 64,
        free_blocks: 300 * 16 + 40 * 64,
        free_pages: 3 * page,
        free_arenas: 0,
        sparse_pages: page,
        sparse_free: 40 * 64,
        limit: 0,
    };
    let mut twice = of_one;
    twice.multiply(2, 1);
    assert_eq!(survey, twice);
    let of = |block, used, free| Use {
        arena: 5,
        block,
        used,
        free,
    };
    assert_eq!(uses[..2], [of(16, 400, 300), of(64, 20, 40)]);
    assert_eq!(uses[2..], uses[..2]);

    memory.parts[0].1 = arena_header(u128::MAX, 0b111);
    let mut survey = Survey::default();
    for _ in 0..2 {
        survey.arena(base, &mut memory, &mut |_| {
            unreachable!("nothing is in use")
        });
    }
    let free_arenas = 6 * page;
    assert_eq!(
        survey,
        Survey {
            free_arenas,
            ..Survey::default()
        }
    );
}

#[test]
fn a_header_that_is_not_valid_counts_for_nothing() {
    let size = |header: &[u8]| {
        let mut survey = Survey::default();
        survey.page(header, &mut [Blocks::default(); CLASSES]);
        survey.pages
    };
    let (classes, groups) = (CLASSES as u8, GROUPS as u8);
    // At most a page, a class, and a group.
    assert_eq!(
        size(&header([5, 10, 1024, 16], classes - 1, 0)),
        PAGE_SIZE as u64
    );
    assert_eq!(
        size(&header([5, 10, 20, 16], groups - 1, 1)),
        PAGE_SIZE as u64
    );
    for not_valid in [
        header([11, 10, 20, 16], 1, 0),
        header([5, 21, 20, 16], 1, 0),
        header([5, 10, 1025, 16], 1, 0),
        header([5, 10, 20, 16], classes, 0),
        header([5, 10, 20, 16], groups, 1),
    ] {
        assert_eq!(size(&not_valid), 0);
    }
}

#[test]
fn the_table_is_read_by_os_pages() {
    let base = 7 << 30;
    // The first page and the third one are mapped.
    let table = |page: usize, ours: &[usize]| {
        let mut bytes = vec![0; TABLE_PART];
        ours.iter().for_each(|&at| bytes[at] = 1);
        (base + STATE_SIZE + page * TABLE_PART, bytes)
    };
    let mut memory = FakeMemory {
        parts: vec![table(0, &[3, 4090, 4095]), table(2, &[0, 9, 10])],
        copied: Vec::new(),
    };
    let mut numbers = Vec::new();
    let range = 4000..2 * TABLE_PART + 10;
    for_each_arena(base, range, &mut memory, &mut |address, _| {
        numbers.push(arena_number(address) as usize);
    });
    let third = 2 * TABLE_PART;
    assert_eq!(numbers, [4090, 4095, third, third + 9]);
    let at = base + STATE_SIZE;
    let copied = [
        (at + 4000, 96),
        (at + TABLE_PART, TABLE_PART),
        (at + third, 10),
    ];
    assert_eq!(memory.copied, copied);
}

#[test]
fn a_part_of_the_arenas_stands_for_all() {
    let (heap, _) = fragmented(400_000, 2, 64);
    let (all, _) = survey(heap, usize::MAX);
    let (part, _) = survey(heap, 3);
    let ratio = part.blocks as f64 / all.blocks as f64;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    assert_eq!(part.limit, all.limit);
}

#[test]
fn a_heap_that_was_moved_is_found() {
    unsafe extern "C" fn holds() -> bool {
        true
    }
    let (heap, _) = fragmented(10_000, 1, 64);
    let before = survey(heap, usize::MAX);
    // SAFETY: no other thread uses the heap.
    unsafe { assert!(Heap::share(heap, holds)) };
    assert_eq!(survey(heap, usize::MAX), before);
}

#[test]
fn what_cannot_be_read_is_no_survey() {
    let (heap, _) = fragmented(100, 1, 64);
    // SAFETY: a heap of this test.
    unsafe {
        assert_eq!(Heap::survey(heap, 9, &mut Nothing, &mut |_| ()), None);
        assert_eq!(arenas(heap, &mut Nothing), []);
        assert_eq!(Heap::own_memory(heap, &mut Nothing), None);
    }
    let header = [0xff; PAGE_HEADER];
    let mut sum = Survey::default();
    sum.page(&header, &mut [Blocks::default(); CLASSES]);
    assert_eq!(sum, Survey::default());
}
