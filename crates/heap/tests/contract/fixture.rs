//! The heap as the tests call it.

use core::ffi::c_void;
use nthbyte_heap::{BlockDomain, DomainFunctions, Fallback, Heap, HeapConfig, HeapObserver};
use nthbyte_sampling::{Distances, Period, SamplePoints};

/// A heap and the functions of its object domain.
pub struct Fixture {
    pub heap: *mut Heap,
    functions: DomainFunctions,
}

impl Fixture {
    pub fn new(config: HeapConfig) -> Self {
        let heap = Heap::create(config, [Fallback::LIBC; 2])
            .expect("address space")
            .as_ptr();
        Self {
            heap,
            functions: DomainFunctions::of(BlockDomain::Object),
        }
    }

    pub fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: a heap that this test alone uses; so in all that follows.
        unsafe { (self.functions.malloc)(self.heap.cast(), size).cast() }
    }

    pub fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: as in `malloc`.
        unsafe { (self.functions.calloc)(self.heap.cast(), count, size).cast() }
    }

    pub fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: as in `malloc`; the tests pass blocks in use.
        unsafe { (self.functions.realloc)(self.heap.cast(), block.cast(), size).cast() }
    }

    pub fn free(&self, block: *mut u8) {
        // SAFETY: as in `realloc`.
        unsafe { (self.functions.free)(self.heap.cast(), block.cast()) }
    }

    pub fn statistics(&self) -> nthbyte_heap::HeapStatistics {
        // SAFETY: as in `malloc`.
        unsafe { Heap::statistics_exact(self.heap) }
    }

    pub fn owns(&self, block: usize) -> bool {
        // SAFETY: as in `malloc`.
        unsafe { Heap::owns(self.heap.cast(), block as *const c_void) }
    }

    pub fn has_address(&self, number: usize) -> bool {
        // SAFETY: the heap is this thread's.
        unsafe { Heap::has_address(self.heap.cast(), number) }
    }

    pub fn start(&self, period: u64, observer: HeapObserver) {
        let period = Period::new(period).expect("a period");
        let points = SamplePoints::new(period, Distances::Exponential, 1);
        // SAFETY: as in `malloc`; the tests' observers live until they stop.
        unsafe { Heap::start(self.heap, points, observer) }
    }

    pub fn stop(&self) {
        // SAFETY: as in `malloc`.
        unsafe { Heap::stop(self.heap) }
    }
}

/// This thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the address is of a variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value };
}
