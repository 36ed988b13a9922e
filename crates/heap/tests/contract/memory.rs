//! Memory that is purged, collapsed into huge pages, or refused.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::ops::Range;

use nthbyte_heap::{Heap, HeapConfig, HugePages};

use super::fixture::{Fixture, errno, set_errno};

#[test]
fn collapsed_pages_keep_their_contents() {
    for (huge_pages, are_wanted) in [(HugePages::Thp, true), (HugePages::Off, false)] {
        let heap = Fixture::new(HeapConfig {
            huge_pages,
            ..HeapConfig::default()
        });
        // SAFETY: as in `malloc`.
        let collapse = || unsafe { Heap::collapse(heap.heap) };
        assert!(!collapse(), "nothing is full");
        let mut collapsed = 0;
        for round in 1..=2 {
            let fill = |number| fill(number) ^ round;
            let blocks: Vec<_> = (0..30_000)
                .map(|number| {
                    let block = heap.malloc(256);
                    // SAFETY: the block has 256 bytes.
                    unsafe { block.write_bytes(fill(number), 256) };
                    block
                })
                .collect();
            // 7.5 MB are three arenas, and are retained. After a slow collapse there is a pause.
            collapsed += (0..10).filter(|_| collapse()).count();
            assert!(collapsed <= 3);
            assert_eq!(collapsed > 0, are_wanted);
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
    if !are_pages_collapsed_on_request() {
        return;
    }
    let heap = Fixture::new(HeapConfig {
        huge_pages_from: 0,
        ..HeapConfig::default()
    });
    let mut blocks = Vec::new();
    let mut arenas = Vec::new();
    while blocks.len() * 256 < 20 << 20 {
        let block = heap.malloc(256);
        // SAFETY: the block has 256 bytes.
        unsafe { block.write_bytes(fill(blocks.len()), 256) };
        blocks.push(block);
        let arena = block.addr() & !(ARENA - 1);
        if arenas.last() != Some(&arena) {
            arenas.push(arena);
        }
        if blocks.len() % 997 == 0 {
            let resident: usize = arenas.iter().map(|&arena| resident(arena)).sum();
            let used = blocks.len() * 260;
            let more = resident.saturating_sub(used);
            // Several pages get their memory at once.
            let may_be = heap.statistics().reserved / 32 + (320 << 10);
            assert!(more <= may_be, "{more} bytes more than {used}");
        }
    }
    arenas.sort_unstable();
    arenas.dedup();
    assert!(arenas.len() > 8);
    free(&heap, blocks);
}

#[test]
fn a_heap_that_grows_again_is_huge_from_the_start() {
    if !are_there_huge_pages() {
        return;
    }
    let heap = Fixture::new(HeapConfig {
        huge_pages_from: 0,
        ..HeapConfig::default()
    });
    let (blocks, first) = grow(&heap);
    // All of them, unless the kernel refuses to collapse pages.
    let filled = first.values().filter(|&&huge| !huge).count();
    assert!(filled >= 3, "{filled} of {}", first.len());
    free(&heap, blocks);
    let is_kept = |&arena: &usize| heap.owns(arena + ARENA / 2);
    let kept: Vec<_> = first.into_keys().filter(is_kept).collect();
    let (blocks, mut again) = grow(&heap);
    again.retain(|arena, _| !kept.contains(arena));
    // Of the last arena, part may not have been touched the first time.
    let small = again.values().filter(|&&huge| !huge).count();
    assert!(again.len() > 8 && small <= 1, "{small} of {}", again.len());
    free(&heap, blocks);
}

/// From 32 MiB on, in their whole mapping, which is moved as a whole when they are resized; but not blocks of zeroes.
#[test]
fn large_blocks_are_huge() {
    if !are_there_huge_pages() {
        return;
    }
    for huge_pages in [HugePages::Thp, HugePages::Hugetlb, HugePages::Off] {
        let heap = Fixture::new(HeapConfig {
            huge_pages,
            ..HeapConfig::default()
        });
        let wanted = huge_pages != HugePages::Off;
        let is_huge = |block: *mut u8| {
            let (mapping, is_huge) = mapping(block.addr());
            // SAFETY: the block is the C library's.
            let usable = unsafe { libc::malloc_usable_size(block.cast()) };
            assert!(mapping.contains(&(block.addr() + usable - 1)));
            is_huge
        };
        let small = heap.malloc(32 * MIB - 1);
        let zeroes = heap.calloc(40, MIB);
        assert!(!is_huge(small) && !is_huge(zeroes));
        for size in (40 * MIB - 40..40 * MIB).chain([32 * MIB]) {
            let mut block = heap.malloc(size);
            assert_eq!(is_huge(block), wanted, "{size}");
            let last = 32 * MIB - 1;
            // SAFETY: the block has 32 MiB.
            unsafe { (block.write(1), block.add(last).write(2)) };
            for size in [size + 1, 60 * MIB, 35 * MIB, 200 * MIB] {
                block = heap.realloc(block, size);
                // SAFETY: as above.
                assert_eq!(unsafe { (block.read(), block.add(last).read()) }, (1, 2));
                assert_eq!(is_huge(block), wanted, "{size}");
            }
            heap.free(block);
        }
        // A block that has grown.
        let grown = heap.realloc(small, 33 * MIB);
        assert_eq!(is_huge(grown), wanted);
        [grown, zeroes]
            .into_iter()
            .for_each(|block| heap.free(block));
    }
}

/// A large block of which only the beginning and the end are written, as by `bytes` and a short `read`, gets no huge page.
#[test]
fn large_blocks_that_are_hardly_used_stay_small() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if enabled.is_ok_and(|enabled| enabled.contains("[always]")) {
        eprintln!("not tested: all memory is huge here");
        return;
    }
    let heap = Fixture::new(HeapConfig::default());
    let mut more = 0;
    for size in (40 * MIB..44 * MIB).step_by(250_000) {
        let block = heap.malloc(size);
        // SAFETY: the block has `size` bytes.
        unsafe {
            block.write_bytes(1, MIB);
            block.add(size - 1).write(0);
        }
        more += usize::from(resident_in(block, size) > MIB + (256 << 10));
        heap.free(block);
    }
    // khugepaged may collapse one block or two meanwhile.
    assert!(more <= 2, "{more} blocks");
}

/// Before Linux 6.1 pages cannot be collapsed, before 5.14 memory cannot be populated.
#[test]
fn older_kernels_are_supported() {
    if !are_there_huge_pages() {
        return;
    }
    std::thread::spawn(|| {
        if !refuse_advice(&[libc::MADV_POPULATE_WRITE, libc::MADV_COLLAPSE]) {
            eprintln!("not tested: system calls cannot be filtered here");
            return;
        }
        let heap = Fixture::new(HeapConfig {
            huge_pages_from: 0,
            ..HeapConfig::default()
        });
        let (blocks, arenas) = grow(&heap);
        // After three refusals arenas are huge from the start.
        let filled = arenas.values().filter(|&&huge| !huge).count();
        assert!((3..6).contains(&filled), "{filled} of {}", arenas.len());
        free(&heap, blocks);
    })
    .join()
    .unwrap();
}

/// A program may read `errno` after an allocation or a free: neither changes it, whatever the kernel says to advice.
#[test]
fn refused_advice_leaves_errno_alone() {
    std::thread::spawn(|| {
        let refused = [
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_POPULATE_WRITE,
            libc::MADV_COLLAPSE,
            libc::MADV_DONTNEED,
        ];
        if !refuse_advice(&refused) {
            eprintln!("not tested: system calls cannot be filtered here");
            return;
        }
        let heap = Fixture::new(HeapConfig {
            huge_pages_from: 0,
            ..HeapConfig::default()
        });
        set_errno(libc::EXDEV);
        let block = heap.realloc(heap.malloc(32 * MIB), 40 * MIB);
        assert!(!block.is_null());
        assert_eq!(errno(), libc::EXDEV);
        heap.free(block);
        let blocks: Vec<_> = (0..160_000).map(|_| heap.malloc(256)).collect();
        assert_eq!(errno(), libc::EXDEV);
        // One block in a thousand stays, so that pages are purged and not unmapped.
        for (number, block) in blocks.into_iter().enumerate() {
            if number % 1000 != 0 {
                heap.free(block);
            }
        }
        assert_eq!(errno(), libc::EXDEV);
    })
    .join()
    .unwrap();
}

/// 20 MB of blocks are dropped: their memory is kept, in case that the program makes as many again.
#[test]
fn free_memory_that_is_not_used_again_decays() {
    let heap = Fixture::new(HeapConfig::default());
    // SAFETY: as in `malloc`.
    let decay = || unsafe { Heap::decay(heap.heap) };
    assert!(!decay(), "nothing was freed yet");
    let drop_blocks = || {
        let blocks: Vec<_> = (0..80_000).map(|_| heap.malloc(256)).collect();
        for block in blocks {
            heap.free(block);
        }
    };
    drop_blocks();
    let retained = heap.statistics().reserved;
    assert!(retained >= 20 * MIB, "{retained}");
    decay();
    for _ in 0..10 {
        drop_blocks();
        assert!(!decay(), "all of it was used since the last time");
        assert_eq!(heap.statistics().reserved, retained);
    }
    assert!(decay());
    let half = heap.statistics().reserved;
    assert!(half <= retained / 2 + 2 * ARENA, "{half} of {retained}");
    let times = (0..100).take_while(|_| decay()).count();
    assert!(times < 20, "{times}");
    assert!(heap.statistics().reserved <= 2 * ARENA);
}

#[test]
fn a_large_block_takes_the_place_of_free_memory() {
    let heap = Fixture::new(HeapConfig::default());
    let blocks: Vec<_> = (0..80_000).map(|_| heap.malloc(256)).collect();
    for block in blocks {
        heap.free(block);
    }
    let retained = heap.statistics().reserved;
    let small = heap.malloc(MIB / 8);
    assert_eq!(heap.statistics().reserved, retained);
    let large = heap.malloc(8 * MIB);
    let left = heap.statistics().reserved;
    assert!(left <= retained - 8 * MIB, "{left} of {retained}");
    assert!(
        left >= retained - 8 * MIB - 2 * ARENA,
        "{left} of {retained}"
    );
    let larger = heap.calloc(100, MIB);
    let least = heap.statistics().reserved;
    assert!((2 * MIB..=4 * MIB + 2 * ARENA).contains(&least), "{least}");
    for block in [small, large, larger] {
        heap.free(block);
    }
}

/// Blocks of 40 MB, written to, and their arenas: whether each was advised to be huge when its first page was taken.
fn grow(heap: &Fixture) -> (Vec<*mut u8>, BTreeMap<usize, bool>) {
    let mut arenas = BTreeMap::new();
    let blocks = (0..160_000).map(|number| {
        let block = heap.malloc(256);
        let arena = block.addr() & !(ARENA - 1);
        arenas.entry(arena).or_insert_with(|| mapping(arena).1);
        // SAFETY: the block has 256 bytes.
        unsafe { block.write_bytes(fill(number), 256) };
        block
    });
    (blocks.collect(), arenas)
}

/// The byte that fills the block with this number.
fn fill(number: usize) -> u8 {
    (number % 251) as u8
}

/// Frees blocks of 256 bytes, which hold what was written to them.
fn free(heap: &Fixture, blocks: Vec<*mut u8>) {
    for (number, block) in blocks.into_iter().enumerate() {
        // SAFETY: the block has 256 bytes.
        let bytes = unsafe { core::slice::from_raw_parts(block, 256) };
        assert!(bytes.iter().all(|&byte| byte == fill(number)));
        heap.free(block);
    }
}

/// Whether the kernel supports transparent huge pages, enabled or not.
fn are_there_huge_pages() -> bool {
    let there_are = std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists();
    if !there_are {
        eprintln!("not tested: this kernel has no transparent huge pages");
    }
    there_are
}

/// Whether the kernel makes huge pages of a given range at once. Without that it makes them at the first touch.
fn are_pages_collapsed_on_request() -> bool {
    // SAFETY: the first page is never mapped: a kernel that knows the advice says so.
    let done = unsafe { libc::madvise(std::ptr::null_mut(), ARENA, libc::MADV_COLLAPSE) };
    let is_known =
        done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL);
    if !is_known {
        eprintln!("not tested: this kernel does not collapse pages on request");
    }
    is_known
}

/// Makes the kernel refuse some advice of this thread, as if it did not know it. Whether that is possible.
fn refuse_advice(unknown: &[c_int]) -> bool {
    let filter = |code: u32, k: u32, skipped: usize| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skipped as u8,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let skip_unless = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // `struct seccomp_data`: the number of the call, and the lower half of its third argument.
    let mut program = vec![
        filter(load, 0, 0),
        filter(skip_unless, libc::SYS_madvise as u32, 1 + 2 * unknown.len()),
        filter(load, 32, 0),
    ];
    for &advice in unknown {
        program.push(filter(skip_unless, advice.cast_unsigned(), 1));
        program.push(filter(
            answer,
            libc::SECCOMP_RET_ERRNO | libc::EINVAL.cast_unsigned(),
            0,
        ));
    }
    program.push(filter(answer, libc::SECCOMP_RET_ALLOW, 0));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is valid, and ends with an answer.
    unsafe {
        let mode = libc::SECCOMP_MODE_FILTER;
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
    }
}

/// The mapping that an address lies in, and whether it was advised to have huge pages.
fn mapping(address: usize) -> (Range<usize>, bool) {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut mapping = 0..0;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let ends = range.map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(start), Ok(end)]) = ends {
            mapping = start..end;
        } else if mapping.contains(&address)
            && let Some(flags) = line.strip_prefix("VmFlags:")
        {
            return (mapping, flags.split(' ').any(|flag| flag == "hg"));
        }
    }
    panic!("{address:#x} is not mapped");
}

const MIB: usize = 1 << 20;
const ARENA: usize = 2 * MIB;

/// How many bytes of an arena have memory behind them.
fn resident(arena: usize) -> usize {
    resident_in(arena as *const u8, ARENA)
}

/// How many bytes of the OS pages of a range have memory behind them.
fn resident_in(start: *const u8, size: usize) -> usize {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let before = start.addr() % page;
    let mut pages = vec![0u8; (before + size).div_ceil(page)];
    // SAFETY: there is a byte for each page.
    let asked = unsafe {
        libc::mincore(
            start.wrapping_sub(before) as *mut _,
            before + size,
            pages.as_mut_ptr(),
        )
    };
    assert_eq!(asked, 0);
    pages.iter().filter(|&&page| page & 1 != 0).count() * page
}

#[test]
fn an_empty_pool_of_huge_pages_is_reported() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let free_pages = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"));
    let pool_is_empty = free_pages.is_none_or(|number| number.trim() == "0");
    let heap = Fixture::new(HeapConfig {
        huge_pages: HugePages::Hugetlb,
        ..HeapConfig::default()
    });
    assert!(!heap.statistics().huge_page_pool_was_empty);
    assert!(!heap.malloc(100).is_null());
    assert_eq!(heap.statistics().huge_page_pool_was_empty, pool_is_empty);
}
