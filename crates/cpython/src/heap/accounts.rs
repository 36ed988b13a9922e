//! What the writer thread learns of the heap: see [`nthbyte_session::composition`].

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_heap::{Copies, Heap, Survey, Use};
use nthbyte_host::process::Probe;
use nthbyte_profile::composition::Occupancy;
use nthbyte_profile::{Composition, Part};

use crate::api::FREE_THREADED;

/// A survey looks at this many arenas: it then takes about 2 ms.
const MOST_ARENAS: usize = 128;
/// The same for segments of mimalloc, of 32 MiB.
const MOST_SEGMENTS: usize = 64;
/// This many block sizes of arenas are recorded, those with most free memory. The rest is summed up for each block size.
const MOST_USES: usize = 512;

static HEAP: AtomicPtr<Heap> = AtomicPtr::new(std::ptr::null_mut());

/// Lets the writer thread look at the heap, which is never unmapped.
pub fn publish(heap: *mut c_void) {
    HEAP.store(heap.cast(), Release);
}

fn heap() -> Option<*const Heap> {
    let heap = HEAP.load(Acquire);
    (!heap.is_null()).then_some(heap.cast_const())
}

/// Calls `visit` with each arena.
pub fn arenas(visit: &mut dyn FnMut(Range<usize>)) {
    if FREE_THREADED {
        nthbyte_mimalloc::segments(visit);
        return;
    }
    let (Some(heap), Some(probe)) = (heap(), Probe::new()) else {
        return;
    };
    // SAFETY: the heap is never unmapped.
    unsafe { Heap::arenas(heap, &mut Kernel(probe), visit) }
}

/// Arenas that are made huge pages again at a time.
const MOST_COLLAPSED: usize = 8;

/// Makes some arenas huge pages again, from a number on. Returns the next number, if there are more.
pub fn collapse_again(from: u32) -> Option<u32> {
    let (heap, probe) = (heap()?, Probe::new()?);
    // SAFETY: the heap is never unmapped.
    unsafe { Heap::collapse_again(heap, from, MOST_COLLAPSED, &mut Kernel(probe)) }
}

/// Calls `visit` with the heap's own memory.
pub fn own(visit: &mut dyn FnMut(Range<usize>)) {
    let (Some(heap), Some(probe)) = (heap(), Probe::new()) else {
        return;
    };
    // SAFETY: the heap is never unmapped.
    if let Some(range) = unsafe { Heap::own_memory(heap, &mut Kernel(probe)) } {
        visit(range);
    }
}

struct Kernel(Probe);

impl Copies for Kernel {
    fn copy(&mut self, addresses: &[usize], length: usize, into: &mut [u8]) -> bool {
        self.0.gather(addresses, length, into)
    }
}

/// Adds what the heap's memory is used for.
pub fn add(composition: &mut Composition, is_thorough: bool) {
    if FREE_THREADED {
        if let Some(survey) = nthbyte_mimalloc::survey(MOST_SEGMENTS) {
            set(composition, &survey);
        }
        return;
    }
    let (Some(heap), Some(probe)) = (heap(), Probe::new()) else {
        return;
    };
    let mut uses: Vec<Use> = Vec::new();
    let mut visit = |of: Use| {
        if is_thorough && uses.try_reserve(1).is_ok() {
            uses.push(of);
        }
    };
    // SAFETY: the heap is never unmapped.
    let survey = unsafe { Heap::survey(heap, MOST_ARENAS, &mut Kernel(probe), &mut visit) };
    let Some(survey) = survey else {
        return;
    };
    set(composition, &survey);
    composition.occupancy = occupancy(uses);
}

fn set(composition: &mut Composition, survey: &Survey) {
    for (part, bytes) in [
        (Part::HeapPages, survey.pages),
        (Part::HeapBlocks, survey.blocks),
        (Part::HeapFreeBlocks, survey.free_blocks),
        (Part::HeapFreePages, survey.free_pages),
        (Part::HeapFreeArenas, survey.free_arenas),
        (Part::HeapSparsePages, survey.sparse_pages),
        (Part::HeapSparseFree, survey.sparse_free),
        (Part::HeapLimit, survey.limit),
    ] {
        composition.set(part, bytes);
    }
}

/// The uses with most free memory, and sums of the others.
fn occupancy(mut uses: Vec<Use>) -> Vec<Occupancy> {
    let free = |of: &Use| u64::from(of.free) * u64::from(of.block);
    uses.sort_unstable_by_key(|of| std::cmp::Reverse(free(of)));
    let mut occupancy: Vec<Occupancy> = Vec::new();
    for (at, of) in uses.iter().enumerate() {
        let arena = if at < MOST_USES { of.arena } else { 0 };
        let rest = occupancy
            .iter_mut()
            .rev()
            .take_while(|other| other.arena == 0)
            .find(|other| arena == 0 && other.block == of.block);
        match rest {
            Some(rest) => {
                rest.used = rest.used.saturating_add(of.used);
                rest.free = rest.free.saturating_add(of.free);
            }
            None => occupancy.push(Occupancy {
                arena,
                block: of.block,
                used: of.used,
                free: of.free,
            }),
        }
    }
    occupancy.sort_unstable_by_key(|of| (of.arena, of.block));
    occupancy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_arenas_are_kept_and_the_rest_is_summed_up() {
        let of = |arena: u32, block| Use {
            arena,
            block,
            used: 1,
            free: arena,
        };
        let uses: Vec<Use> = (1..=600)
            .map(|arena| of(arena, 64))
            .chain([of(7, 4096)])
            .collect();
        let kept = occupancy(uses);
        let rest = kept[0];
        assert_eq!((rest.arena, rest.block, rest.used), (0, 64, 89));
        assert_eq!(rest.free, (1..=89).sum::<u32>());
        assert_eq!(kept.len(), MOST_USES + 1);
        assert!(kept.iter().any(|of| of.block == 4096));
        assert!(kept[1..].iter().all(|of| of.arena > 89 || of.block == 4096));
    }
}
