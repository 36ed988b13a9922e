//! A library that installs the heap in a running CPython, for measurements: see `benches/measure.py`.
//! In real use the agent does it.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use nthbyte_heap::{
    BlockDomain, DomainFunctions, Fallback, Heap, HeapConfig, HeapObserver, HeapStatistics,
    HugePages, NOT_INTERESTED, SampledBlock,
};
use nthbyte_sampling::{Distances, Period, SamplePoints};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

type Allocator = Fallback; // PyMemAllocatorEx has the same layout

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

static HEAP: AtomicPtr<Heap> = AtomicPtr::new(null_mut());
static SAMPLES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn sampled(_: *mut c_void, _: &SampledBlock) -> u32 {
    SAMPLES.fetch_add(1, Ordering::Relaxed);
    1
}

unsafe extern "C" fn freed(_: *mut c_void, _: *const c_void, token: u32) {
    assert_ne!(token, NOT_INTERESTED);
    FREED.fetch_add(1, Ordering::Relaxed);
}

/// Installs the heap for the domains OBJ and MEM, and samples if `period` is not 0. Returns 0 on success.
#[unsafe(no_mangle)]
pub extern "C" fn install(
    limit: usize,
    memory_limit: usize,
    huge_pages: c_int,
    huge_pages_from: usize,
    period: u64,
) -> c_int {
    type Exchange = unsafe extern "C" fn(c_int, *mut Allocator);
    const MEM: c_int = 1;
    const OBJ: c_int = 2;
    // SAFETY: both functions are CPython's, and this runs under the GIL.
    unsafe {
        let get = dlsym(null_mut(), c"PyMem_GetAllocator".as_ptr());
        let set = dlsym(null_mut(), c"PyMem_SetAllocator".as_ptr());
        if get.is_null() || set.is_null() {
            return 1;
        }
        let get: Exchange = core::mem::transmute(get);
        let set: Exchange = core::mem::transmute(set);
        let mut fallbacks = [Fallback::LIBC; 2];
        get(OBJ, &mut fallbacks[0]);
        get(MEM, &mut fallbacks[1]);
        let config = HeapConfig {
            limits: [limit, memory_limit],
            huge_pages: match huge_pages {
                0 => HugePages::Off,
                1 => HugePages::Thp,
                _ => HugePages::Hugetlb,
            },
            huge_pages_from,
            trusts: None,
            holds_lock: None,
        };
        let Some(heap) = Heap::create(config, fallbacks) else {
            return 2;
        };
        if let Some(period) = Period::new(period) {
            let points = SamplePoints::new(period, Distances::Exponential, 1);
            let observer = HeapObserver {
                context: null_mut(),
                sampled,
                freed,
            };
            Heap::start(heap.as_ptr(), points, observer);
        }
        for (domain, number) in [(BlockDomain::Object, OBJ), (BlockDomain::Memory, MEM)] {
            let DomainFunctions {
                malloc,
                calloc,
                realloc,
                free,
            } = DomainFunctions::of(domain);
            let context = heap.as_ptr().cast();
            set(
                number,
                &mut Allocator {
                    context,
                    malloc,
                    calloc,
                    realloc,
                    free,
                },
            );
        }
        HEAP.store(heap.as_ptr(), Ordering::Relaxed);
    }
    0
}

/// Samples taken, sampled blocks freed, and the statistics: bytes reserved, in pages, in use, allocated.
#[unsafe(no_mangle)]
pub extern "C" fn report(numbers: &mut [u64; 6]) {
    let heap = HEAP.load(Ordering::Relaxed);
    // SAFETY: `install` made the heap, and this runs under the GIL.
    let HeapStatistics {
        reserved,
        in_pages,
        in_use,
        allocated,
        ..
    } = unsafe { Heap::statistics_exact(heap) };
    *numbers = [
        SAMPLES.load(Ordering::Relaxed),
        FREED.load(Ordering::Relaxed),
        reserved as u64,
        in_pages as u64,
        in_use as u64,
        allocated,
    ];
}
