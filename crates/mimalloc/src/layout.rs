//! Where mimalloc and the thread state keep the words read and written here, and the arithmetic of size classes.
//!
//! The offsets come from `offsetof` with the headers of CPython 3.13 (`Include/internal/mimalloc/mimalloc/types.h`,
//! `Include/internal/pycore_tstate.h`), built with `--disable-gil`. [`crate::verify`] compares each with what mimalloc does
//! before anything is changed.

use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The heaps of a thread: `_Py_MIMALLOC_HEAP_…`.
pub const HEAPS: usize = 4;
/// `_Py_MIMALLOC_HEAP_MEM`: buffers.
pub const HEAP_MEM: usize = 0;
/// `_Py_MIMALLOC_HEAP_OBJECT`: objects that the collector does not know.
pub const HEAP_OBJECT: usize = 1;
/// `_Py_MIMALLOC_HEAP_GC`: objects of the collector. From this heap on, it looks at each block in use.
pub const HEAP_GC: usize = 2;
/// `_Py_MIMALLOC_HEAP_GC_PRE`: such objects behind two words of their own.
pub const HEAP_GC_PRE: usize = 3;

/// The largest request that mimalloc serves from a list without its generic path (`MI_SMALL_SIZE_MAX`).
pub const SMALL_MAX: usize = 1024;
/// The largest block that shares its page with others (`MI_MEDIUM_OBJ_SIZE_MAX`).
pub const SHARED_MAX: usize = 128 << 10;
/// The queues of blocks that share pages: 1 to 52. The classes have the same numbers.
pub const CLASSES: usize = 53;
/// The queues with a block size, from 1 on.
pub const SIZED_QUEUES: usize = 73;
/// All queues of a heap: the last two are of huge blocks, and of full pages.
pub const QUEUES: usize = 75;
/// `page->flags`: the page is in the queue of full pages.
pub const FLAG_FULL: u8 = 1;
/// `page->flags`: blocks may have aligned addresses inside of them. It sends each free to the generic path.
pub const FLAG_ALIGNED: u8 = 2;
/// `MI_HUGE_BLOCK_SIZE`: stands for the size of blocks that are larger than a segment.
pub const HUGE_BLOCK: u32 = 0x8000_0000;
/// Bytes of a segment, which is aligned to them.
pub const SEGMENT: usize = 32 << 20;
/// Bytes of a slice of a segment, as a power of two. A page has one or more.
pub const SLICE_SHIFT: u32 = 16;
/// `PyObject.ob_gc_bits`. The lowest bit says that the collector knows the object.
pub const GC_BITS: usize = 11;
/// The words before an object in [`HEAP_GC_PRE`], in bytes.
pub const PRE_HEADER: usize = 16;

/// Offsets that a version of CPython decides, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `_PyThreadStateImpl.mimalloc.current_object_heap`.
    pub current_heap: usize,
    /// `_PyThreadStateImpl.mimalloc.heaps`.
    pub heaps: usize,
    /// `sizeof(mi_heap_t)`.
    pub heap_size: usize,
    /// `mi_heap_t.pages_free_direct`.
    pub direct: usize,
    /// `mi_heap_t.pages`.
    pub queues: usize,
    /// `mi_heap_t.cookie`: another number each time that a heap is initialized.
    pub cookie: usize,
    /// `mi_heap_t.page_count`.
    pub page_count: usize,
    /// `mi_segment_t.thread_id`.
    pub segment_thread: usize,
    /// `mi_segment_t.slices`.
    pub slices: usize,
    /// `sizeof(mi_page_t)`.
    pub page_size: usize,
}

/// The layout of CPython 3.13.
pub const V3_13: Layout = Layout {
    current_heap: 344,
    heaps: 352,
    heap_size: 3064,
    direct: 8,
    queues: 1040,
    cookie: 2864,
    page_count: 3024,
    segment_thread: 256,
    slices: 264,
    page_size: size_of::<Page>(),
};

impl Layout {
    /// All fields.
    #[cfg(feature = "test-seams")]
    pub fn fields_mut(&mut self) -> [&mut usize; 10] {
        [
            &mut self.current_heap,
            &mut self.heaps,
            &mut self.heap_size,
            &mut self.direct,
            &mut self.queues,
            &mut self.cookie,
            &mut self.page_count,
            &mut self.segment_thread,
            &mut self.slices,
            &mut self.page_size,
        ]
    }
}

/// A free block.
#[repr(C)]
pub struct Block {
    /// The next one on its list.
    pub next: *mut Self,
}

/// `mi_page_t`: the record of a page. Ours have the same shape, and lie in our memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Page {
    /// How many slices the page has.
    pub slice_count: u32,
    /// Distance in bytes from the record of another slice of the page back to the page's.
    pub slice_offset: u32,
    pub bits: u8,
    /// Not used in release builds, and set anew when a page begins another use: see [`crate::cut`].
    pub debug_offset: u8,
    /// How many blocks were made.
    pub capacity: u16,
    /// How many blocks the page has room for.
    pub reserved: u16,
    pub flags: u8,
    /// Bit 0: the blocks on the list are zeroes.
    pub zero_and_expire: u8,
    /// The list that allocations take blocks from.
    pub free: *mut Block,
    /// Blocks in use.
    pub used: u32,
    pub block_size: u32,
    /// Blocks that this thread freed.
    pub local_free: *mut Block,
    /// Blocks that other threads freed; the lowest two bits are flags.
    pub thread_free: usize,
    /// The heap; 0 when its thread has ended.
    pub heap: usize,
    pub next: *mut Self,
    pub prev: *mut Self,
    pub qsbr_node: [usize; 2],
    pub qsbr_goal: u64,
}

impl Page {
    /// A record without blocks.
    pub const EMPTY: Self = Self {
        slice_count: 0,
        slice_offset: 0,
        bits: 0,
        debug_offset: 0,
        capacity: 0,
        reserved: 0,
        flags: 0,
        zero_and_expire: 0,
        free: null_mut(),
        used: 0,
        block_size: 0,
        local_free: null_mut(),
        thread_free: 0,
        heap: 0,
        next: null_mut(),
        prev: null_mut(),
        qsbr_node: [0; 2],
        qsbr_goal: 0,
    };
}

/// `mi_page_queue_t`: the pages of a size class.
#[repr(C)]
pub struct Queue {
    pub first: *mut Page,
    pub last: *mut Page,
    pub block_size: usize,
}

/// The end of `mi_segment_t` before its thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SegmentHeader {
    /// Its address, and a number of the process.
    pub cookie: usize,
    pub segment_slices: usize,
    /// How many slices its header takes.
    pub info_slices: usize,
    pub kind: usize,
    /// How many slices have records.
    pub slice_entries: usize,
    pub thread: usize,
}

/// The address of a segment's header.
pub const fn segment_header(segment: usize) -> usize {
    segment + V3_13.segment_thread + 8 - size_of::<SegmentHeader>()
}

/// The segment of a block.
#[inline(always)]
pub fn segment_of(block: *mut u8) -> *mut u8 {
    let start = (block as usize).wrapping_sub(1) & !(SEGMENT - 1);
    block.wrapping_sub(block as usize - start)
}

/// The thread that a segment belongs to: its thread pointer, or 0.
///
/// # Safety
/// `segment` is one.
#[inline(always)]
pub unsafe fn thread_of(segment: *mut u8) -> usize {
    // SAFETY: by the contract; other threads write the word at once.
    unsafe { (*segment.add(V3_13.segment_thread).cast::<AtomicUsize>()).load(Relaxed) }
}

/// The page of a block.
///
/// # Safety
/// The block is in use, and lies in the segment.
#[inline(always)]
pub unsafe fn page_of(segment: *mut u8, block: *mut u8) -> *mut Page {
    // SAFETY: by the contract, the record of the block's slice, and the page's before it.
    unsafe {
        let slice = (block as usize - segment as usize) >> SLICE_SHIFT;
        let record = segment.add(V3_13.slices + slice * size_of::<Page>());
        record
            .sub((*record.cast::<Page>()).slice_offset as usize)
            .cast()
    }
}

/// A heap of a thread state.
#[inline(always)]
pub fn heap_at(state: *mut u8, heap: usize) -> *mut u8 {
    state.wrapping_add(V3_13.heaps + heap * V3_13.heap_size)
}

/// The number of a heap of a thread state.
pub fn heap_number(state: *mut u8, heap: usize) -> Option<usize> {
    let at = heap.checked_sub(state as usize + V3_13.heaps)? / V3_13.heap_size;
    (at < HEAPS).then_some(at)
}

/// The heap's pages for small requests, by the request's words.
#[inline(always)]
pub fn direct(heap: *mut u8) -> *mut *mut Page {
    heap.wrapping_add(V3_13.direct).cast()
}

/// A queue of a heap.
pub fn queue(heap: *mut u8, class: usize) -> *mut Queue {
    heap.wrapping_add(V3_13.queues)
        .cast::<Queue>()
        .wrapping_add(class)
}

/// A heap's number of pages.
///
/// # Safety
/// The heap is of the calling thread.
#[inline(always)]
pub unsafe fn page_count(heap: *mut u8) -> usize {
    // SAFETY: by the contract.
    unsafe { heap.add(V3_13.page_count).cast::<usize>().read() }
}

/// Whether other threads have freed blocks of full pages of a heap, since its thread looked last: its `thread_delayed_free`, which
/// follows the queues.
///
/// # Safety
/// The heap is of the calling thread.
#[inline(always)]
pub unsafe fn has_delayed_frees(heap: *mut u8) -> bool {
    // SAFETY: by the contract. Other threads write the word at once.
    unsafe { (*queue(heap, QUEUES).cast::<AtomicUsize>()).load(Relaxed) != 0 }
}

/// The size class of a request, at most [`SHARED_MAX`] bytes (`mi_bin`): 4 for each power of two from 64 bytes on, and
/// multiples of 16 bytes below.
#[unsafe(link_section = "nthbyte_hot")]
pub const fn class_of(size: usize) -> usize {
    let words = size.div_ceil(8);
    match words {
        0 | 1 => 1,
        2..=8 => words.next_multiple_of(2),
        _ => {
            let last = words - 1;
            let highest = last.ilog2() as usize;
            (highest << 2) + ((last >> (highest - 2)) & 3) - 3
        }
    }
}

/// The block size of a queue (`QNULL` of `Objects/mimalloc/init.c`).
pub const fn size_of_queue(queue: usize) -> usize {
    8 * match queue {
        0 => 1,
        1..=8 => queue,
        _ => {
            let step = queue - 5;
            (5 + step % 4) << (step / 4)
        }
    }
}

/// For each class, the first entry of `pages_free_direct` that belongs to it. The last is the block size's own.
pub const fn first_entries() -> [u8; CLASSES] {
    let mut first = [0; CLASSES];
    let mut words = SMALL_MAX / 8;
    while words > 0 {
        first[class_of(8 * words)] = words as u8;
        words -= 1;
    }
    first[1] = 0;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_sizes_of_their_queues() {
        let known = [
            (1, 8),
            (2, 16),
            (8, 64),
            (9, 80),
            (10, 96),
            (12, 128),
            (13, 160),
            (17, 320),
            (24, 1024),
            (25, 1280),
            (52, SHARED_MAX),
            (72, 4 << 20),
        ];
        for (queue, size) in known {
            assert_eq!(size_of_queue(queue), size, "{queue}");
        }
        for size in 0..=SHARED_MAX {
            let class = class_of(size);
            assert!(class < CLASSES && size_of_queue(class) >= size);
            assert!(
                size <= 16 || class < 10 || size_of_queue(class - 1) < size,
                "{size}"
            );
        }
    }

    #[test]
    fn each_entry_belongs_to_one_class() {
        let first = first_entries();
        for words in 0..=SMALL_MAX / 8 {
            let class = class_of(8 * words);
            assert!((usize::from(first[class])..=size_of_queue(class) / 8).contains(&words));
        }
    }
}
