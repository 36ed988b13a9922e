//! The domains: their limits, and what the fallbacks serve without the lock.

use core::ffi::c_void;
use core::ptr::null_mut;
use nthbyte_heap::{
    BlockDomain, DomainFunctions, HeapConfig, HeapObserver, MEDIUM_LIMIT, SampledBlock,
};
use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::fixture::Fixture;

#[test]
fn each_domain_has_its_limit() {
    let limits = [2032, 512];
    let heap = Fixture::new(HeapConfig {
        limits,
        ..HeapConfig::default()
    });
    for (domain, limit) in [BlockDomain::Object, BlockDomain::Memory]
        .into_iter()
        .zip(limits)
    {
        let functions = DomainFunctions::of(domain);
        for size in [500, limit, limit + 1] {
            // SAFETY: the context is a heap that this test alone uses, and each block is freed once.
            unsafe {
                for block in [
                    (functions.malloc)(heap.heap.cast(), size),
                    (functions.calloc)(heap.heap.cast(), 1, size),
                    (functions.realloc)(heap.heap.cast(), null_mut(), size),
                    (functions.realloc)(heap.heap.cast(), heap.malloc(16).cast(), size),
                ] {
                    assert_eq!(heap.owns(block.addr()), size <= limit, "{domain:?} {size}");
                    (functions.free)(heap.heap.cast(), block);
                }
            }
        }
    }
    assert_eq!(heap.statistics().in_use, 0);
}

thread_local! {
    static TRUSTED: Cell<bool> = const { Cell::new(false) };
    static SITE: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn trusts(site: usize) -> bool {
    SITE.set(site);
    TRUSTED.get()
}

/// Above the limit the heap serves trusted callers, up to its largest class. What others get there is the fallback's, also
/// when they resize a block of the heap.
#[test]
fn a_trusted_caller_gets_more_than_the_limit() {
    let heap = Fixture::new(HeapConfig {
        limits: [MEDIUM_LIMIT, 512],
        trusts: Some(trusts),
        ..HeapConfig::default()
    });
    let context = heap.heap.cast();
    let functions = DomainFunctions::of(BlockDomain::Memory);
    for size in [512, 513, 1300, MEDIUM_LIMIT, MEDIUM_LIMIT + 1] {
        for trusted in [true, false] {
            TRUSTED.set(trusted);
            let own = size <= 512 || trusted && size <= MEDIUM_LIMIT;
            // SAFETY: the context is a heap that this test alone uses, and each block is freed once.
            unsafe {
                for make in [
                    &|| (functions.malloc)(context, size),
                    &|| (functions.calloc)(context, 1, size),
                    &|| (functions.realloc)(context, null_mut(), size),
                    &|| (functions.realloc)(context, heap.malloc(16).cast(), size),
                ] as [&dyn Fn() -> *mut c_void; 4]
                {
                    SITE.set(0);
                    let block = make();
                    assert_eq!(heap.owns(block.addr()), own, "{size} {trusted}");
                    let asked = size > 512 && size <= MEDIUM_LIMIT;
                    assert_eq!(SITE.get() != 0, asked, "{size}");
                    (functions.free)(context, block);
                }
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        for (old, new) in [(1300, 1290), (1300, 1301), (1300, 700), (600, 1300)] {
            TRUSTED.set(true);
            let block = (functions.malloc)(context, old);
            block.cast::<u8>().write_bytes(7, old);
            let block = (functions.realloc)(context, block, new);
            assert!(heap.owns(block.addr()));
            TRUSTED.set(false);
            let block = (functions.realloc)(context, block, new);
            assert!(!heap.owns(block.addr()), "{old} {new}");
            let bytes = core::slice::from_raw_parts(block.cast::<u8>(), old.min(new));
            assert!(bytes.iter().all(|&byte| byte == 7));
            libc::free(block);
            // Within the limit, the block may stay where it is.
            TRUSTED.set(true);
            let block = (functions.malloc)(context, 513);
            TRUSTED.set(false);
            let block = (functions.realloc)(context, block, 510);
            assert!(heap.owns(block.addr()));
            (functions.free)(context, block);
        }
    }
    assert_eq!(heap.statistics().in_use, 0);
}

thread_local! {
    static HOLDS_LOCK: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn holds_lock() -> bool {
    HOLDS_LOCK.get()
}

/// Threads without the lock make and free blocks above the limit, while the holder of the lock samples every block. Its
/// samples, and the ends of them, are as if it were alone.
#[test]
fn large_blocks_need_no_lock() {
    static SAMPLED: AtomicUsize = AtomicUsize::new(0);
    static FREED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn sampled(_: *mut c_void, _: &SampledBlock) -> u32 {
        SAMPLED.fetch_add(1, Relaxed);
        assert!(HOLDS_LOCK.get());
        1
    }
    unsafe extern "C" fn freed(_: *mut c_void, _: *const c_void, _: u32) {
        FREED.fetch_add(1, Relaxed);
        assert!(HOLDS_LOCK.get());
    }
    const ROUNDS: usize = 20;
    const BLOCKS: usize = 500;
    let heap = Fixture::new(HeapConfig {
        limits: [MEDIUM_LIMIT, 512],
        holds_lock: Some(holds_lock),
        ..HeapConfig::default()
    });
    let functions = DomainFunctions::of(BlockDomain::Memory);
    let work = |context: usize| {
        let context = context as *mut c_void;
        for round in 0..ROUNDS {
            let fill = round as u8;
            // SAFETY: only the main thread holds the lock; the others make and free large blocks only.
            unsafe {
                let blocks: Vec<_> = (0..BLOCKS)
                    .map(|number| {
                        let size = 513 + 3 * number;
                        let mut block = match number % 3 {
                            0 => (functions.calloc)(context, 1, size),
                            _ => (functions.malloc)(context, size),
                        };
                        if number % 5 == 0 {
                            block = (functions.realloc)(context, block, size);
                        }
                        block.cast::<u8>().write_bytes(fill, size);
                        (block, size)
                    })
                    .collect();
                for (block, size) in blocks {
                    let bytes = core::slice::from_raw_parts(block.cast::<u8>(), size);
                    assert!(bytes.iter().all(|&byte| byte == fill));
                    (functions.free)(context, block);
                }
            }
        }
    };
    let observer = HeapObserver {
        context: null_mut(),
        sampled,
        freed,
    };
    HOLDS_LOCK.set(true);
    heap.start(1, observer);
    let context = heap.heap.addr();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || work(context));
        }
        work(context);
    });
    // Each resized block is a new one.
    let own = ROUNDS * (BLOCKS + BLOCKS / 5);
    assert_eq!(
        [SAMPLED.load(Relaxed), FREED.load(Relaxed)],
        [own, own],
        "samples and their ends"
    );
    // Nor does the holder of the lock notice a block that the program frees without the heap.
    // SAFETY: the blocks are the fallback's, which is the C library's allocator.
    unsafe {
        for _ in 0..BLOCKS {
            libc::free((functions.malloc)(context as *mut c_void, 1000));
        }
    }
    assert_eq!(SAMPLED.load(Relaxed), own + BLOCKS);
    assert_eq!(FREED.load(Relaxed), own);
    heap.stop();
}
