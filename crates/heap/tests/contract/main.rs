//! The contract of the heap. What random sequences can check is in `prediction.rs`.

use core::ffi::c_void;
use core::ptr::null_mut;
use nthbyte_heap::{
    BlockDomain, DomainFunctions, Fallback, Heap, HeapConfig, HeapObserver, MEDIUM_LIMIT,
    NOT_INTERESTED, SampledBlock, block_size,
};
use std::collections::HashSet;
use std::process::Command;

mod domains;
mod fixture;
mod memory;

use fixture::{Fixture, errno, set_errno};

#[test]
fn requests_of_no_bytes_have_pointers_of_their_own() {
    let heap = Fixture::new(HeapConfig::default());
    let blocks: Vec<*mut u8> = (0..5000)
        .map(|number| {
            if number % 2 == 0 {
                heap.malloc(0)
            } else {
                heap.calloc(number, 0)
            }
        })
        .collect();
    let distinct: HashSet<_> = blocks.iter().collect();
    assert_eq!(distinct.len(), blocks.len());
    assert!(!distinct.contains(&null_mut()));
    blocks.into_iter().for_each(|block| heap.free(block));
    assert_eq!(heap.statistics().in_use, 0);
}

#[test]
fn null_may_be_freed_and_resized() {
    let heap = Fixture::new(HeapConfig::default());
    heap.free(null_mut());
    let block = heap.realloc(null_mut(), 100);
    assert!(heap.owns(block.addr()));
    heap.free(block);
}

#[test]
fn products_that_overflow_are_refused() {
    let heap = Fixture::new(HeapConfig::default());
    for (count, size) in [(usize::MAX, 2), (1 << 33, 1 << 33), (3, usize::MAX / 2)] {
        assert!(heap.calloc(count, size).is_null());
    }
    assert!(heap.calloc(1, isize::MAX as usize).is_null());
    assert!(heap.malloc(usize::MAX).is_null());
    assert!(heap.malloc(usize::MAX - 4096).is_null());
    let block = heap.malloc(100);
    assert!(heap.realloc(block, usize::MAX).is_null());
    // SAFETY: a failed resize leaves the block as it was: in use, with 100 bytes.
    unsafe { block.write_bytes(1, 100) };
    heap.free(block);
}

#[test]
fn a_request_that_fails_is_not_counted() {
    let heap = Fixture::new(HeapConfig::default());
    heap.start(1 << 20, FAILING);
    heap.free(heap.malloc(100_000));
    let before = heap.statistics().allocated_large;
    assert!(heap.malloc(1 << 60).is_null());
    assert!(heap.calloc(1, 1 << 60).is_null());
    assert_eq!(heap.statistics().allocated_large, before);
    heap.stop();
}

#[test]
fn any_address_may_be_asked_for() {
    let heap = Fixture::new(HeapConfig::default());
    let block = heap.malloc(1);
    assert!(heap.owns(block.addr()));
    for address in [0, 1, 1 << 46, 1 << 47, (1 << 47) - 1, 1 << 56, usize::MAX] {
        assert!(!heap.owns(address), "{address:x}");
    }
    assert!(!heap.owns((&raw const heap).addr()));
}

#[test]
fn blocks_of_the_fallback_are_resized_and_freed_by_it() {
    let heap = Fixture::new(HeapConfig::default());
    // SAFETY: malloc has no preconditions; the block has 40 bytes.
    let old: *mut u8 = unsafe {
        let old = libc::malloc(40).cast::<u8>();
        old.write_bytes(7, 40);
        old
    };
    let new = heap.realloc(old, 50_000);
    assert!(!heap.owns(new.addr()));
    // SAFETY: resizing keeps what fits.
    let kept = unsafe { core::slice::from_raw_parts(new, 40) };
    assert!(kept.iter().all(|&byte| byte == 7));
    let small = heap.realloc(new, 10);
    heap.free(small);
    assert_eq!(heap.statistics().in_use, 0);
}

#[test]
fn sizes_around_the_limits() {
    for limit in [512, 1024, MEDIUM_LIMIT] {
        let heap = Fixture::new(HeapConfig {
            limits: [limit, MEDIUM_LIMIT],
            ..HeapConfig::default()
        });
        for size in (496..=528).chain(limit - 16..=limit + 16) {
            let block = heap.malloc(size);
            assert_eq!(heap.owns(block.addr()), size <= limit, "{size}");
            // SAFETY: the block has `size` bytes.
            unsafe { block.write_bytes(3, size) };
            heap.free(block);
        }
    }
}

#[test]
fn other_threads_may_free_blocks() {
    let heap = Fixture::new(HeapConfig::default());
    let blocks: Vec<usize> = (0..4000).map(|_| heap.malloc(64).addr()).collect();
    let context = heap.heap.addr();
    std::thread::scope(|scope| {
        for part in blocks.chunks(1000) {
            scope.spawn(move || {
                for &block in part {
                    // SAFETY: the block is in use, and nobody else frees it.
                    unsafe { Heap::remote_free(context as *mut c_void, block as *mut c_void) };
                }
            });
        }
    });
    let more: Vec<*mut u8> = (0..4000).map(|_| heap.malloc(480)).collect();
    assert_eq!(heap.statistics().in_use, 4000 * 480);
    more.into_iter().for_each(|block| heap.free(block));
}

#[test]
fn a_forked_child_has_a_heap_of_its_own() {
    let heap = Fixture::new(HeapConfig::default());
    let block = heap.malloc(48);
    // SAFETY: the child only uses the heap, which takes no locks, and leaves by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            heap.free(block);
            let ok = (0..100_000).all(|number| !heap.malloc(number % 700).is_null());
            libc::_exit(i32::from(!ok));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    heap.free(block);
}

/// An observer that calls the heap: what it received, and how deep its calls are nested.
#[derive(Default)]
struct Nested {
    heap: usize,
    depth: usize,
    sampled: usize,
    freed: usize,
    /// Blocks that the observer got from the heap itself.
    of_heap: usize,
}

unsafe extern "C" fn nested_sampled(context: *mut c_void, _: &SampledBlock) -> u32 {
    // SAFETY: the context is a `Nested` that the test keeps; it is not used while this runs.
    unsafe {
        let nested = context.cast::<Nested>();
        (*nested).depth += 1;
        assert_eq!((*nested).depth, 1, "an observer within an observer");
        let functions = DomainFunctions::of(BlockDomain::Memory);
        let heap = (*nested).heap as *mut c_void;
        for size in [8, 300, 900, 10_000] {
            let block = (functions.malloc)(heap, size);
            (*nested).of_heap += usize::from(Heap::owns(heap, block));
            (functions.free)(heap, block);
        }
        (*nested).sampled += 1;
        (*nested).depth -= 1;
        if (*nested).sampled % 2 == 0 {
            NOT_INTERESTED
        } else {
            1
        }
    }
}

unsafe extern "C" fn nested_freed(context: *mut c_void, _: *const c_void, _: u32) {
    // SAFETY: as in `nested_sampled`.
    unsafe { (*context.cast::<Nested>()).freed += 1 };
}

#[test]
fn an_observer_that_allocates_is_served_and_not_sampled() {
    let heap = Fixture::new(HeapConfig::default());
    let mut nested = Nested {
        heap: heap.heap.addr(),
        ..Nested::default()
    };
    let context = (&raw mut nested).cast();
    heap.start(
        1,
        HeapObserver {
            context,
            sampled: nested_sampled,
            freed: nested_freed,
        },
    );
    let blocks: Vec<*mut u8> = (0..1000).map(|number| heap.malloc(number * 3)).collect();
    let lost = heap.statistics().lost;
    blocks.into_iter().for_each(|block| heap.free(block));
    heap.stop();
    assert_eq!((nested.sampled, nested.freed), (1000, 500));
    assert_eq!((lost, nested.of_heap), (4000, 3000));
    assert_eq!(heap.statistics().in_use, 0);
}

unsafe extern "C" fn failing_sampled(_: *mut c_void, _: &SampledBlock) -> u32 {
    set_errno(libc::EFAULT);
    1
}

unsafe extern "C" fn failing_freed(_: *mut c_void, _: *const c_void, _: u32) {
    set_errno(libc::EFAULT);
}

const FAILING: HeapObserver = HeapObserver {
    context: null_mut(),
    sampled: failing_sampled,
    freed: failing_freed,
};

#[test]
fn an_observer_cannot_change_errno() {
    let heap = Fixture::new(HeapConfig::default());
    heap.start(1, FAILING);
    set_errno(libc::EXDEV);
    for size in [10, 1000, 100_000] {
        let block = heap.malloc(size);
        assert_eq!(errno(), libc::EXDEV);
        heap.free(block);
        assert_eq!(errno(), libc::EXDEV);
    }
    heap.stop();
}

unsafe extern "C" fn note_site(context: *mut c_void, sample: &SampledBlock) -> u32 {
    // SAFETY: the context is the test's variable.
    unsafe { *context.cast::<usize>() = sample.site };
    NOT_INTERESTED
}

/// For `malloc` this holds only in a release build, where its ways out are jumps: tests/cpython/test_types.py.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn a_sample_has_its_allocation_site() {
    #[inline(never)]
    fn zeroed(heap: &Fixture, size: usize) -> *mut u8 {
        std::hint::black_box(heap.calloc(1, size))
    }
    #[inline(never)]
    fn resized(heap: &Fixture, size: usize) -> *mut u8 {
        std::hint::black_box(heap.realloc(null_mut(), size))
    }
    let heap = Fixture::new(HeapConfig::default());
    let mut site = 0usize;
    heap.start(
        1,
        HeapObserver {
            context: (&raw mut site).cast(),
            sampled: note_site,
            freed: nested_freed,
        },
    );
    let mut sites = HashSet::new();
    for allocate in [zeroed, resized] {
        let mut here = HashSet::new();
        for size in [16, 600, MEDIUM_LIMIT + 1] {
            site = 0;
            heap.free(allocate(&heap, size));
            // SAFETY: the observer has written it.
            here.insert(unsafe { (&raw const site).read_volatile() });
        }
        assert_eq!(here.len(), 1, "one place in the program, whatever the size");
        sites.extend(here);
    }
    assert_eq!(sites.len(), 2);
    assert!(!sites.contains(&0));
    heap.stop();
}

#[test]
fn stop_without_a_session_does_nothing() {
    let heap = Fixture::new(HeapConfig::default());
    heap.stop();
    let block = heap.malloc(10);
    heap.stop();
    heap.free(block);
    assert_eq!(heap.statistics().allocated, block_size(10) as u64);
}

/// Runs a test that is marked as ignored, in a process of its own.
fn in_a_process_of_its_own(test: &str) {
    let run = Command::new(std::env::current_exe().expect("a path"))
        .args([
            test,
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .output()
        .expect("the test's own executable runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success(),
        "{test}: {}\n{text}{errors}",
        run.status
    );
    // With a wrong name, no test runs, and the status is 0.
    assert!(text.contains("test result: ok. 1 passed"), "{text}");
}

/// The bytes of address space that this process has.
fn addresses() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

/// Allows this process so many bytes of address space.
fn limit_addresses(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the limit is valid for reading.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(failed, 0);
}

#[test]
fn running_out_of_memory_leaves_the_heap_consistent() {
    in_a_process_of_its_own("out_of_memory");
}

#[test]
#[ignore = "sets a limit on the whole process: run by running_out_of_memory_leaves_the_heap_consistent"]
fn out_of_memory() {
    let heap = Fixture::new(HeapConfig::default());
    let mut nested = Nested {
        heap: heap.heap.addr(),
        ..Nested::default()
    };
    let context = (&raw mut nested).cast();
    let mut blocks: Vec<(*mut u8, usize)> = Vec::with_capacity(8 << 20);
    limit_addresses(addresses() + (48 << 20));
    for round in 0..6 {
        match round {
            1 | 4 => {
                heap.start(
                    4096,
                    HeapObserver {
                        context,
                        sampled: nested_sampled,
                        freed: nested_freed,
                    },
                );
            }
            3 => heap.stop(),
            _ => {}
        }
        let mut refused = 0;
        let mut number = round;
        while refused < 1000 {
            number += 7;
            let size = [8, 56, 250, 512, 1500, 5000, 70_000][number % 7] + number % 5;
            let block = if number % 3 == 0 {
                heap.calloc(1, size)
            } else {
                heap.malloc(size)
            };
            if block.is_null() {
                refused += 1;
                continue;
            }
            // SAFETY: the block has `size` bytes.
            unsafe { block.write_bytes(size as u8, size) };
            blocks.push((block, size));
            if number % 11 == 0 {
                let (block, size) = blocks.pop().expect("just pushed");
                let new = heap.realloc(block, size * 2);
                blocks.push(if new.is_null() {
                    (block, size)
                } else {
                    (new, size)
                });
            }
        }
        assert!(blocks.len() > 10_000);
        for (block, size) in blocks.drain(..) {
            // SAFETY: the block is in use, and its first `size` bytes were written.
            let bytes = unsafe { core::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|&byte| byte == size as u8));
            heap.free(block);
        }
        assert_eq!(heap.statistics().in_use, 0);
    }
    heap.stop();
    assert!(nested.sampled > 0);
}

#[test]
fn free_blocks_serve_another_size_when_memory_ends() {
    in_a_process_of_its_own("free_blocks_and_no_memory");
}

#[test]
#[ignore = "sets a limit on the whole process: run by free_blocks_serve_another_size_when_memory_ends"]
fn free_blocks_and_no_memory() {
    const PAGE: usize = 16 << 10;
    let heap = Fixture::new(HeapConfig::default());
    let mut blocks: Vec<*mut u8> = Vec::with_capacity(1 << 16);
    limit_addresses(addresses() + (16 << 20));
    let mut own = || Some(heap.malloc(500)).filter(|block| heap.owns(block.addr()));
    blocks.extend(core::iter::from_fn(&mut own));
    // All blocks of one page: they are on the list of their size now.
    let page = blocks[0].addr() / PAGE;
    for block in blocks.extract_if(.., |block| block.addr() / PAGE == page) {
        heap.free(block);
    }
    // The first requests are refused, because the system was asked for memory a short while ago.
    let mut others = (0..10_000).map(|_| heap.malloc(50));
    assert!(others.any(|block| heap.owns(block.addr())));
}

/// A page for sampled blocks serves as many as there is room for.
#[test]
fn sampled_blocks_share_pages() {
    let heap = Fixture::new(HeapConfig::default());
    heap.start(1, FAILING);
    let blocks: Vec<*mut u8> = (0..2000).map(|_| heap.malloc(50)).collect();
    let reserved = heap.statistics().reserved;
    assert!(reserved <= 4 << 20, "{reserved}");
    blocks.into_iter().for_each(|block| heap.free(block));
    heap.stop();
}

#[test]
fn where_address_space_is_limited_a_heap_takes_little_of_it() {
    in_a_process_of_its_own("limited_address_space");
}

#[test]
#[ignore = "sets a limit on the whole process: run by where_address_space_is_limited_a_heap_takes_little_of_it"]
fn limited_address_space() {
    limit_addresses(addresses() + (64 << 30));
    let before = addresses();
    let heap = Fixture::new(HeapConfig::default());
    let taken = addresses() - before;
    assert!(taken < 8 << 20, "{taken}");
    let block = heap.malloc(100);
    assert!(!block.is_null() && heap.owns(block.addr()));
    assert!(heap.has_address(block.addr()) && heap.has_address(block.addr() + 99));
    // A number in each page of the table, and beyond the last one: most of them are not mapped. The arena may begin at one.
    let is_other = |number: &usize| number >> 21 != block.addr() >> 21;
    let numbers = (0..1 << 49).step_by(8 << 30).filter(is_other);
    assert!(
        numbers
            .chain([usize::MAX, block.addr() | 1 << 63])
            .all(|number| !heap.has_address(number))
    );
    heap.free(block);
}

#[test]
fn a_heap_that_cannot_be_made_is_none() {
    in_a_process_of_its_own("no_address_space");
}

#[test]
#[ignore = "sets a limit on the whole process: run by a_heap_that_cannot_be_made_is_none"]
fn no_address_space() {
    limit_addresses(32 << 20);
    assert!(Heap::create(HeapConfig::default(), [Fallback::LIBC; 2]).is_none());
}
