//! The nursery and its arithmetic: sections 2.2 and 3.1 to 3.4 of the paper.
//!
//! Four addresses decide everything:
//!
//! ```text
//!    allocated      │ free                  │ next pinned object, or the end
//! ──────────────────┼────────────┬──────────┼─────────
//!             nursery_free  sample_point  nursery_top
//!                        nursery_limit = min(sample_point, nursery_top)
//! ```
//!
//! The *invariant* of section 3.2: `sample_point - nursery_free = bytes until the next sample`. The fast path keeps it by
//! adding to `nursery_free`. Whatever else moves `nursery_free` (a collection, a step over a pinned object) moves
//! `sample_point` by as much. An allocation outside of the nursery does not move `nursery_free`; so it moves `sample_point`
//! to the left.
//!
//! `sample_point` is not stored. The distance is a [`Sampler`]'s, which is told of the bytes up to `counted_to` only when
//! one of these things happens: `sample_point = counted_to + bytes_until_sample - 1`. (The sampled byte is the one that begins
//! at `sample_point`, so the object that goes beyond it is the one that is sampled.)

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use nthbyte_sampling::Sampler;

use crate::object::{Address, WORD};

/// The memory in which objects begin their lives.
#[derive(Debug)]
pub(crate) struct Nursery {
    /// `nursery_free`: the next object begins here.
    free: usize,
    /// `nursery_limit`: an object that ends beyond it takes the slow path.
    limit: usize,
    /// `nursery_top`: the end of the gap in which objects are allocated.
    top: usize,
    /// The other gaps between pinned objects, as start and end, the last one first.
    gaps: Vec<(usize, usize)>,
    /// Draws the sample points; `None` if sampling is off.
    sampler: Option<Sampler>,
    /// The bytes before this address are known to the sampler.
    counted_to: usize,
    /// The bytes that were allocated before `counted_to`, and outside of the nursery.
    allocated: u64,
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the nursery alone.
unsafe impl Send for Nursery {}

impl Nursery {
    /// A nursery of this many bytes, rounded up to whole words, all zero.
    pub fn new(bytes: usize) -> Self {
        let layout =
            Layout::array::<u64>(bytes.div_ceil(WORD).max(2)).expect("a nursery fits in memory");
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        let start = memory.as_ptr().expose_provenance();
        let top = start + layout.size();
        Self {
            free: start,
            limit: top,
            top,
            gaps: Vec::new(),
            sampler: None,
            counted_to: start,
            allocated: 0,
            memory,
            layout,
        }
    }

    fn start(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    fn end(&self) -> usize {
        self.start() + self.layout.size()
    }

    /// Whether an object lies in the nursery.
    pub fn contains(&self, object: Address) -> bool {
        object.0.wrapping_sub(self.start()) < self.layout.size()
    }

    /// Listing 1: the fast path. `None` if the object of `size` bytes goes beyond the limit; then `nursery_free` has been
    /// moved all the same, as in the paper, and [`reserved_at_sample_point`](Self::reserved_at_sample_point) comes next.
    #[inline(always)]
    pub fn allocate(&mut self, size: usize) -> Option<Address> {
        let result = self.free;
        self.free = result + size;
        if self.free > self.limit {
            return None;
        }
        Some(Address(result))
    }

    /// The first half of listing 4: was the limit, which an object of `size` bytes went beyond, the sample point? Then the
    /// object is there, with the number of its sample points, and the limit is the next one. If not, `nursery_free` is back
    /// where it was, and this gap has too little room.
    pub fn reserved_at_sample_point(&mut self, size: usize) -> Option<(Address, u32)> {
        if self.free > self.top {
            self.free -= size;
            return None;
        }
        let result = self.free - size;
        self.count_to(result);
        let points = self.count(size);
        self.counted_to = self.free;
        self.set_limit();
        Some((Address(result), points))
    }

    /// An object of `size` bytes in this gap, if there is room, with the number of its sample points.
    pub fn reserve(&mut self, size: usize) -> Option<(Address, u32)> {
        if let Some(object) = self.allocate(size) {
            return Some((object, 0));
        }
        self.reserved_at_sample_point(size)
    }

    /// Goes on in the next gap between pinned objects: `nursery_free` jumps, and so does the sample point. `false` if there
    /// is none.
    pub fn next_gap(&mut self) -> bool {
        let Some((start, end)) = self.gaps.pop() else {
            return false;
        };
        self.jump(start, end);
        true
    }

    /// Listing 5: an object of `size` bytes is allocated elsewhere. How many sample points does it contain?
    pub fn allocated_outside(&mut self, size: usize) -> u32 {
        self.count_to(self.free);
        let points = self.count(size);
        self.set_limit();
        points
    }

    /// Section 3.3: a minor collection has emptied the nursery, but for pinned objects, given as start and end in the order
    /// of addresses. Everything else becomes zero.
    pub fn reset(&mut self, pinned: &[(usize, usize)]) {
        let mut start = self.start();
        self.gaps.clear();
        for &(object, end) in pinned.iter().chain([&(self.end(), self.end())]) {
            if start < object {
                self.gaps.push((start, object));
            }
            start = end;
        }
        for &(start, end) in &self.gaps {
            let gap: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: a gap lies inside of the nursery, and no object lies in it.
            unsafe { gap.write_bytes(0, end - start) };
        }
        self.gaps.reverse();
        let (start, end) = self.gaps.pop().unwrap_or((self.end(), self.end()));
        self.jump(start, end);
    }

    /// Switches sampling on or off: from here on, this sampler decides.
    pub fn set_sampler(&mut self, sampler: Option<Sampler>) {
        self.count_to(self.free);
        self.sampler = sampler;
        self.set_limit();
    }

    /// The bytes of all allocations so far.
    pub fn allocated(&self) -> u64 {
        self.allocated + (self.free - self.counted_to) as u64
    }

    /// `nursery_free` moves to another gap, and the sample point with it.
    fn jump(&mut self, start: usize, end: usize) {
        self.count_to(self.free);
        (self.free, self.counted_to, self.top) = (start, start, end);
        self.set_limit();
    }

    /// Tells the sampler of the bytes up to an address. The fast path has seen that none of them is a sample point.
    fn count_to(&mut self, address: usize) {
        let points = self.count(address - self.counted_to);
        debug_assert_eq!(points, 0, "a sample point was passed");
        self.counted_to = address;
    }

    fn count(&mut self, bytes: usize) -> u32 {
        self.allocated += bytes as u64;
        let sampler = self.sampler.as_mut();
        sampler.map_or(0, |sampler| sampler.advance(bytes as u64))
    }

    fn set_limit(&mut self) {
        let until = self
            .sampler
            .as_ref()
            .map_or(u64::MAX, Sampler::bytes_until_sample);
        let until = usize::try_from(until - 1).unwrap_or(usize::MAX);
        self.limit = self.top.min(self.counted_to.saturating_add(until));
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
