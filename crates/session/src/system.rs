//! The system's memory, as the agents take it: small blocks from the C library, large ones as mappings.
//!
//! glibc gives a large block a mapping of its own as well. But when such a block is freed, larger ones come from its heap
//! from then on, and it keeps more of what the program frees (`M_MMAP_THRESHOLD` in mallopt(3)): the program's memory would
//! depend on ours. The mappings are made by the kernel's number, because calls of `mmap` may be the program's to record.
//!
//! Of the C library's functions, only `malloc`, `realloc` and `free` are called. A program may have an allocator of its own
//! that has no function for aligned blocks: those of the C library would be freed by the program's `free`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::align_of;
use std::ptr::null_mut;

/// Blocks from this size on are mappings.
pub(crate) const LARGE: usize = 128 << 10;
/// The alignment of mappings: the smallest OS page.
const PAGE: usize = 4096;

/// The alignment of each block of `malloc` that is not smaller.
const ALWAYS: usize = align_of::<libc::max_align_t>();

/// Whether the standard library would ask the C library for an aligned block.
const fn is_aligned(layout: Layout) -> bool {
    layout.align() > ALWAYS || layout.align() > layout.size()
}

const fn is_mapping(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

/// Null if there is no memory.
///
/// # Safety
/// The size is not zero.
#[inline]
pub(crate) unsafe fn alloc(layout: Layout) -> *mut u8 {
    if is_mapping(layout) {
        return map(layout.size());
    }
    if is_aligned(layout) {
        return alloc_aligned(layout);
    }
    // SAFETY: by the contract.
    unsafe { System.alloc(layout) }
}

/// The block of `malloc` around an aligned one, and its layout. `None` if it would be too large.
fn around(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(layout.align().max(ALWAYS))?;
    Layout::from_size_align(size, ALWAYS).ok()
}

/// A block in one of `malloc`, whose address lies before it.
#[cold]
fn alloc_aligned(layout: Layout) -> *mut u8 {
    let Some(around) = around(layout) else {
        return null_mut();
    };
    // SAFETY: the size is not zero. Both blocks are aligned to 16 bytes, so one begins at least so many after the other,
    // and ends in it.
    unsafe {
        let outer = System.alloc(around);
        if outer.is_null() {
            return outer;
        }
        let align = layout.align().max(ALWAYS);
        let block = outer.add(align - outer as usize % align);
        block.cast::<*mut u8>().sub(1).write(outer);
        block
    }
}

/// # Safety
/// The block is of [`alloc`] or [`realloc`], with this layout, and not in use.
#[inline]
pub(crate) unsafe fn dealloc(block: *mut u8, layout: Layout) {
    // SAFETY: by the contract.
    unsafe {
        if is_mapping(layout) {
            unmap(block, layout.size());
        } else if is_aligned(layout) {
            if let Some(around) = around(layout) {
                System.dealloc(block.cast::<*mut u8>().sub(1).read(), around);
            }
        } else {
            System.dealloc(block, layout);
        }
    }
}

/// Changes the size of a block. Null if there is no memory, or if the block would be another kind, or is aligned to more
/// than those of `malloc`: it stays then.
///
/// # Safety
/// The block is of [`alloc`] or of this function, with this layout; the size is not zero.
#[inline]
pub(crate) unsafe fn realloc(block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: by the contract; the alignment is a valid one.
    unsafe {
        let new = Layout::from_size_align_unchecked(size, layout.align());
        match (is_mapping(layout), is_mapping(new)) {
            (false, false) if !is_aligned(layout) && !is_aligned(new) => {
                System.realloc(block, layout, size)
            }
            (true, true) => remap(block, layout.size(), size),
            _ => null_mut(),
        }
    }
}

/// Maps so many bytes of zeroes. Null if there is no memory.
#[cold]
pub(crate) fn map(size: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (anywhere, no_file, offset) = (0_usize, -1_isize, 0_usize);
    // SAFETY: a new mapping, which replaces nothing.
    pointer(unsafe {
        libc::syscall(
            libc::SYS_mmap,
            anywhere,
            size,
            access,
            kind,
            no_file,
            offset,
        )
    })
}

/// # Safety
/// A mapping of [`map`] or [`remap`], which is not in use.
#[cold]
pub(crate) unsafe fn unmap(start: *mut u8, size: usize) {
    // SAFETY: by the contract.
    unsafe { libc::syscall(libc::SYS_munmap, start, size) };
}

/// # Safety
/// A mapping of [`map`] or of this function.
#[cold]
unsafe fn remap(start: *mut u8, size: usize, new: usize) -> *mut u8 {
    // SAFETY: by the contract; what moves is the mapping.
    pointer(unsafe { libc::syscall(libc::SYS_mremap, start, size, new, libc::MREMAP_MAYMOVE) })
}

/// The address that a call of the kernel has returned; null for an error.
fn pointer(result: libc::c_long) -> *mut u8 {
    if result == -1 {
        return null_mut();
    }
    std::ptr::with_exposed_provenance_mut(result as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_blocks_lie_in_blocks_of_malloc() {
        for align in [8, 32, 64, 4096, 1 << 16] {
            for size in [1, 100, 4096, LARGE - 1, LARGE] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the blocks are used within their size, and freed with their layout.
                unsafe {
                    let blocks = [(); 3].map(|()| alloc(layout));
                    for block in blocks {
                        assert_eq!(block as usize % align, 0);
                        block.write_bytes(7, size);
                    }
                    for block in blocks {
                        assert_eq!((block.read(), block.add(size - 1).read()), (7, 7));
                        dealloc(block, layout);
                    }
                }
            }
        }
        let most = Layout::from_size_align(isize::MAX as usize - 63, 64).unwrap();
        assert!(around(most).is_none() && alloc_aligned(most).is_null());
    }

    #[test]
    fn blocks_keep_their_bytes_at_all_sizes() {
        let align = 16;
        let mut layout = Layout::from_size_align(100, align).unwrap();
        // SAFETY: the block is used within its sizes, and freed with its last layout.
        unsafe {
            let mut block = alloc(layout);
            block.write_bytes(7, layout.size());
            for (size, same_kind) in [
                (1000, true),
                (LARGE - 1, true),
                (LARGE, false),
                (10 * LARGE + 1, true),
                (LARGE + 5000, true),
                (LARGE - 1, false),
            ] {
                let new = Layout::from_size_align(size, align).unwrap();
                let moved = realloc(block, layout, size);
                assert_eq!(!moved.is_null(), same_kind, "{size}");
                let least = layout.size().min(size);
                if same_kind {
                    block = moved;
                } else {
                    let other = alloc(new);
                    other.copy_from_nonoverlapping(block, least);
                    dealloc(block, layout);
                    block = other;
                }
                assert!((0..least).all(|at| block.add(at).read() == 7));
                block.write_bytes(7, size);
                layout = new;
            }
            dealloc(block, layout);
        }
    }
}
