//! Compares the layout with what mimalloc does, before anything is changed. It needs no symbols but the public functions, reads
//! through the kernel, and changes nothing but by allocating and freeing.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_heap::Fallback;
use nthbyte_host::process::{Plain, Probe};

use crate::layout::{
    FLAG_FULL, HEAP_MEM, HEAP_OBJECT, HEAPS, Layout, Page, QUEUES, SEGMENT, SIZED_QUEUES,
    SLICE_SHIFT, SMALL_MAX, SegmentHeader, class_of, first_entries, segment_header, size_of_queue,
};
use crate::survey;
use crate::thread::{self, thread_pointer};

/// `PYMEM_DOMAIN_MEM` and `PYMEM_DOMAIN_OBJ`.
pub const DOMAINS: [c_int; 2] = [2, 1];

/// CPython's public functions that are needed.
#[derive(Clone, Copy)]
pub struct Functions {
    /// `PyThreadState_GetUnchecked`.
    pub thread_state: unsafe extern "C" fn() -> *mut c_void,
    /// `PyMem_GetAllocator`.
    pub get_allocator: unsafe extern "C" fn(c_int, *mut c_void),
    /// `PyMem_SetAllocator`.
    pub set_allocator: unsafe extern "C" fn(c_int, *mut c_void),
    /// `PyObject_Malloc`.
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    /// `PyObject_Free`.
    pub free: unsafe extern "C" fn(*mut c_void),
}

const MIMALLOC: &str = "its mimalloc is not laid out as in the release";
const STATES: &str = "its thread states are not laid out as in the release";

/// The functions of the two domains, objects first.
///
/// # Errors
/// One clause: they are not mimalloc's.
pub fn originals(functions: &Functions) -> Result<[Fallback; 2], &'static str> {
    let own = image_of(functions.malloc as usize).ok_or("its image is not known")?;
    let mut found = [Fallback::LIBC; 2];
    for (place, domain) in found.iter_mut().zip(DOMAINS) {
        let mut words = [0_usize; 5];
        // SAFETY: the function only stores five words.
        unsafe { (functions.get_allocator)(domain, words.as_mut_ptr().cast()) };
        // Debug hooks and tracemalloc have a context, mimalloc has none.
        if words[0] != 0 {
            return Err(
                "debug hooks or another tracer stand before its allocator; leave out PYTHONMALLOC=debug and -X dev, and start tracemalloc after nthbyte",
            );
        }
        if words[1..]
            .iter()
            .any(|&function| image_of(function) != Some(own))
        {
            return Err("another library stands before its allocator; start that after nthbyte");
        }
        // SAFETY: `PyMemAllocatorEx` has this shape, and no function is null.
        *place = unsafe { std::mem::transmute::<[usize; 5], Fallback>(words) };
    }
    Ok(found)
}

/// The start of the image that has an address.
fn image_of(address: usize) -> Option<usize> {
    // SAFETY: a zeroed `Dl_info` is a valid place for the answer.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0)
            .then_some(info.dli_fbase as usize)
    }
}

/// Finds the thread state's place, and compares the layout.
///
/// # Errors
/// One clause that says what does not agree.
///
/// # Safety
/// The calling thread has a state, and is in no allocation.
pub unsafe fn verify(functions: &Functions, layout: &Layout) -> Result<(), &'static str> {
    let probe = Probe::new().ok_or("the system does not allow a process to read itself")?;
    // SAFETY: by the contract.
    let state = unsafe { (functions.thread_state)() } as usize;
    let place = place_of_state(functions, probe, state).ok_or(STATES)?;
    thread::STATE.store(place, Relaxed);
    let checks = Checks {
        functions,
        layout,
        probe,
        state,
    };
    if checks.heaps() != Some(true) {
        return Err(STATES);
    }
    let pages = (0..HEAPS).all(|heap| checks.pages(heap) == Some(true));
    // SAFETY: by the contract.
    if pages && unsafe { checks.blocks() } == Some(true) {
        Ok(())
    } else {
        Err(MIMALLOC)
    }
}

/// Distance from the thread pointer to the variable with the thread state: in the first bytes of the function that returns it,
/// `mov %fs:D, %rax` or `mov $D, %rax`. Static for all threads then.
#[cfg(target_arch = "x86_64")]
fn place_of_state(functions: &Functions, probe: Probe, state: usize) -> Option<isize> {
    let code = probe.read::<[u8; 32]>(functions.thread_state as usize)?;
    code.windows(4).find_map(|bytes| {
        let distance = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if !(-65536..0).contains(&distance) || distance % 8 != 0 {
            return None;
        }
        let distance = distance as isize;
        let found = probe.read::<usize>(thread_pointer().wrapping_add_signed(distance))?;
        (found == state).then_some(distance)
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn place_of_state(_: &Functions, _: Probe, _: usize) -> Option<isize> {
    None
}

struct Checks<'a> {
    functions: &'a Functions,
    layout: &'a Layout,
    probe: Probe,
    state: usize,
}

impl Checks<'_> {
    fn word(&self, address: usize) -> Option<usize> {
        self.read(address)
    }

    fn read<T: Plain>(&self, address: usize) -> Option<T> {
        self.probe.read(address)
    }

    fn heap(&self, heap: usize) -> usize {
        self.state
            .wrapping_add(self.layout.heaps)
            .wrapping_add(heap.wrapping_mul(self.layout.heap_size))
    }

    fn page(&self, address: usize) -> Option<Page> {
        let words = self.read::<[u64; size_of::<Page>() / 8]>(address)?;
        // SAFETY: any words make one.
        Some(unsafe { std::mem::transmute::<[u64; size_of::<Page>() / 8], Page>(words) })
    }

    /// All heaps have the same data behind them, and cookies of their own; the present one is for objects.
    fn heaps(&self) -> Option<bool> {
        let current = self.word(self.state.wrapping_add(self.layout.current_heap))?;
        let data = self.word(self.heap(HEAP_MEM))?;
        let mut cookies = [0; HEAPS];
        for (heap, cookie) in cookies.iter_mut().enumerate() {
            if self.word(self.heap(heap))? != data {
                return Some(false);
            }
            *cookie = self.word(self.heap(heap).wrapping_add(self.layout.cookie))?;
        }
        // Random numbers with the lowest bit set. The thread before the cookie, and no arena.
        let before = self.word(self.heap(HEAP_MEM).wrapping_add(self.layout.cookie) - 16)?;
        let are_cookies = cookies.iter().enumerate().all(|(at, cookie)| {
            cookie & 1 == 1 && cookie >> 40 != 0 && !cookies[..at].contains(cookie)
        });
        Some(
            current == self.heap(HEAP_OBJECT)
                && (self.state..self.state + (1 << 16)).contains(&data)
                && are_cookies
                && before == thread_pointer(),
        )
    }

    /// The queues have the known sizes, their pages have the queue's, and there are as many as the heap says; the entries for
    /// small requests are the queues' first pages.
    fn pages(&self, heap: usize) -> Option<bool> {
        let address = self.heap(heap);
        let mut pages = 0;
        let first_entries = first_entries().into_iter().map(usize::from);
        let first_entries = first_entries.chain(std::iter::repeat(0));
        for (queue, first_entry) in (0..QUEUES).zip(first_entries) {
            let [first, last, size] =
                self.read::<[usize; 3]>(address.wrapping_add(self.layout.queues) + 24 * queue)?;
            if queue < SIZED_QUEUES && size != size_of_queue(queue) {
                return Some(false);
            }
            let (mut at, mut before) = (first, 0);
            while at != 0 {
                let page = self.page(at)?;
                let is_full = queue == QUEUES - 1;
                let fits = queue >= SIZED_QUEUES || page.block_size as usize == size;
                let is_right = page.heap == address
                    && page.prev as usize == before
                    && fits
                    && (page.flags & FLAG_FULL != 0) == is_full
                    && page.capacity > 0
                    && page.capacity <= page.reserved
                    && page.used <= u32::from(page.capacity)
                    && self.counts(&page)?;
                if !is_right || pages > 1 << 20 {
                    return Some(false);
                }
                pages += 1;
                (before, at) = (at, page.next as usize);
            }
            if before != last {
                return Some(false);
            }
            let used = class_of(size) == queue && size <= SMALL_MAX;
            if used && first != 0 {
                for words in first_entry..=size / 8 {
                    if self.word(
                        address
                            .wrapping_add(self.layout.direct)
                            .wrapping_add(8 * words),
                    )? != first
                    {
                        return Some(false);
                    }
                }
            }
        }
        Some(self.word(address.wrapping_add(self.layout.page_count))? == pages)
    }

    /// Whether the used and the free blocks make up all of a page.
    fn counts(&self, page: &Page) -> Option<bool> {
        let free = self.length(page.free as usize, page.capacity)?;
        let freed = self.length(page.local_free as usize, page.capacity)?;
        Some(page.used + free + freed == u32::from(page.capacity))
    }

    fn length(&self, mut at: usize, most: u16) -> Option<u32> {
        let mut length = 0;
        while at != 0 && length <= u32::from(most) {
            (length, at) = (length + 1, self.word(at)?);
        }
        Some(length)
    }

    /// An allocation takes the head of the list of the page that the entry names, and counts one more in use; its free puts it
    /// on the page's other list. The page's record is where the segment has it.
    unsafe fn blocks(&self) -> Option<bool> {
        let heap = self.heap(HEAP_OBJECT);
        for size in [48, 112, 512] {
            let entry = heap + self.layout.direct + size;
            // The list may be empty at first, and a page may have one free block only, which is never on its list then. Each
            // round keeps one.
            let mut kept = [null_mut(); 8];
            let found = kept.iter_mut().find_map(|kept| {
                // SAFETY: by the caller, of `verify`.
                unsafe { *kept = (self.functions.malloc)(size) };
                let address = self.word(entry)?;
                let page = self.page(address)?;
                (!page.free.is_null()).then_some((address, page))
            });
            for block in kept {
                // Null is ignored. What goes to the list of local frees comes before `page` is read again.
                // SAFETY: as above.
                unsafe { (self.functions.free)(block) };
            }
            let (address, _) = found?;
            let page = self.page(address)?;
            // SAFETY: as above.
            let block = unsafe { (self.functions.malloc)(size) } as usize;
            let taken = self.page(address)?;
            let next = self.word(block)?;
            let segment = (block - 1) & !(SEGMENT - 1);
            let thread = self.word(segment + self.layout.segment_thread)?;
            let header = self.read::<[usize; 6]>(segment_header(segment))?;
            // SAFETY: any words make one.
            let header = unsafe { std::mem::transmute::<[usize; 6], SegmentHeader>(header) };
            let slice = segment
                + self.layout.slices
                + ((block - segment) >> SLICE_SHIFT) * self.layout.page_size;
            let back = self.read::<[u32; 2]>(slice)?[1] as usize;
            let allocated = block == page.free as usize
                && taken.free as usize == next
                && taken.used == page.used + 1
                && taken.local_free == page.local_free
                && page.block_size as usize == size
                && thread == thread_pointer()
                && header.segment_slices == SEGMENT >> SLICE_SHIFT
                && header.slice_entries == header.segment_slices
                && (1..8).contains(&header.info_slices)
                && slice.wrapping_sub(back) == address;
            // SAFETY: as above.
            unsafe { (self.functions.free)(block as *mut c_void) };
            let freed = self.page(address)?;
            let is_right = allocated
                && freed.local_free as usize == block
                && freed.used == page.used
                && freed.free == taken.free
                && freed.block_size == page.block_size;
            if !is_right {
                return Some(false);
            }
            survey::learn(segment, header.cookie);
        }
        Some(true)
    }
}
