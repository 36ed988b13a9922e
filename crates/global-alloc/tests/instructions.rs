//! A request that is not sampled runs a few instructions more than the inner allocator's.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

#[path = "../../heap/tests/listing/mod.rs"]
#[allow(dead_code)]
mod listing;

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

use listing::{fast_path, listing};
use nthbyte_global_alloc::Sampled;

/// An allocator with two instructions: a constant and `ret`; or one, without a result.
struct Nothing;

// SAFETY: nobody uses its blocks.
unsafe impl GlobalAlloc for Nothing {
    #[inline(always)]
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        0x7fff_1230 as *mut u8
    }

    #[inline(always)]
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    #[inline(always)]
    unsafe fn realloc(&self, _: *mut u8, _: Layout, _: usize) -> *mut u8 {
        0x7fff_1230 as *mut u8
    }
}

static ALLOCATOR: Sampled<Nothing> = Sampled::new(Nothing);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nthbyte_test_alloc(size: usize) -> *mut u8 {
    // SAFETY: nobody uses the block.
    unsafe { ALLOCATOR.alloc(Layout::from_size_align_unchecked(size, 8)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nthbyte_test_dealloc(block: *mut u8, size: usize) {
    // SAFETY: as above.
    unsafe { ALLOCATOR.dealloc(block, Layout::from_size_align_unchecked(size, 8)) };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nthbyte_test_realloc(
    block: *mut u8,
    size: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    // SAFETY: as above.
    unsafe { ALLOCATOR.realloc(block, Layout::from_size_align_unchecked(size, align), new) }
}

#[test]
fn the_fast_paths_are_short() {
    black_box((
        nthbyte_test_alloc as unsafe extern "C-unwind" fn(_) -> _,
        nthbyte_test_dealloc as unsafe extern "C-unwind" fn(_, _),
        nthbyte_test_realloc as unsafe extern "C-unwind" fn(_, _, _, _) -> _,
    ));
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for (function, own, limit) in [
        ("nthbyte_test_alloc", 2, 3),
        ("nthbyte_test_dealloc", 1, 7),
        ("nthbyte_test_realloc", 2, 10),
    ] {
        let path = fast_path(&program, function).unwrap_or_else(|error| panic!("{error}"));
        println!("{function}\n{}", listing(&path));
        let added = path.len() - own;
        assert!(added <= limit, "{function}: {added}\n{}", listing(&path));
    }
}
