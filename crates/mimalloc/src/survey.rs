//! What mimalloc's memory is used for, read by a thread that owns none of it.
//!
//! Segments are found where the heaps' queues and the pages of sampled blocks begin, and beside these: an arena of mimalloc has many,
//! side by side. A segment is known by its cookie, which is its address and a number of the process. All is read through the
//! kernel, since it changes and may be unmapped meanwhile, and what makes no sense is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_heap::Survey;
use nthbyte_host::memory::page_size;
use nthbyte_host::process::Probe;

use crate::layout::{
    HEAPS, HUGE_BLOCK, Page, QUEUES, SEGMENT, SLICE_SHIFT, SegmentHeader, V3_13, heap_at, queue,
    segment_header,
};
use crate::record;
use crate::tokens;

/// Slices of a segment.
const SLICES: usize = SEGMENT >> SLICE_SHIFT;

/// So many segments are looked at on either side of one.
const BESIDE: usize = 32;
/// The most pages of one queue, and segments, that are looked at.
const MOST_PAGES: usize = 1 << 12;
const MOST_SEGMENTS: usize = 1 << 16;
/// The kernel is asked for at most so many bytes whether they are resident.
const MOST_ASKED: usize = 1 << 30;

/// Of larger blocks, what is resident counts.
const LARGE: usize = 1 << 20;

/// A segment's cookie without its address; 0 before it is known.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Learns how segments are known, from one of them.
pub fn learn(segment: usize, cookie: usize) {
    KEY.store(segment ^ cookie, Relaxed);
}

/// The segments, with their sizes, by their addresses.
fn segments(probe: Probe) -> BTreeMap<usize, usize> {
    let mut found = BTreeMap::new();
    let mut looked_at = BTreeSet::new();
    let mut look = |segment: usize, found: &mut BTreeMap<usize, usize>| {
        if segment == 0 || looked_at.len() > MOST_SEGMENTS || !looked_at.insert(segment) {
            return;
        }
        if let Some(header) = header_at(probe, segment) {
            found.insert(segment, header.segment_slices << SLICE_SHIFT);
        }
    };
    record::for_each(|record| {
        // SAFETY: records are never freed.
        let state = unsafe { (*record).state.load(Relaxed) } as *mut u8;
        if state.is_null() {
            return;
        }
        for heap in 0..HEAPS {
            let queues = queue(heap_at(state, heap), 0) as usize;
            let Some(queues) = probe.read::<[[usize; 3]; QUEUES]>(queues) else {
                continue;
            };
            for (at, [first, last, _]) in queues.into_iter().enumerate() {
                look(last & !(SEGMENT - 1), &mut found);
                let mut page = first;
                // Of blocks that have their segments for themselves, each page is looked at.
                let pages = if at + 2 == QUEUES { MOST_PAGES } else { 1 };
                for _ in 0..pages {
                    look(page & !(SEGMENT - 1), &mut found);
                    let next = page.wrapping_add(std::mem::offset_of!(Page, next));
                    match probe.read(next) {
                        Some(next) if page != 0 => page = next,
                        _ => break,
                    }
                }
            }
        }
    });
    tokens::for_each(|page| look(page.page() as usize & !(SEGMENT - 1), &mut found));
    for segment in found.keys().copied().collect::<Vec<_>>() {
        for distance in (1..=BESIDE).map(|at| at * SEGMENT) {
            look(segment.wrapping_add(distance), &mut found);
            look(segment.saturating_sub(distance), &mut found);
        }
    }
    found
}

/// The header of a segment; `None` if there is none at this address.
fn header_at(probe: Probe, segment: usize) -> Option<SegmentHeader> {
    let words = probe.read::<[usize; size_of::<SegmentHeader>() / 8]>(segment_header(segment))?;
    // SAFETY: any words make one.
    let header = unsafe { std::mem::transmute::<[usize; 6], SegmentHeader>(words) };
    let is_one = header.cookie ^ segment == KEY.load(Relaxed)
        && header.segment_slices > 0
        && header.segment_slices < 1 << (47 - SLICE_SHIFT)
        && header.slice_entries <= SLICES;
    is_one.then_some(header)
}

/// Calls `visit` with the addresses of each segment, in order.
pub fn visit(visit: &mut dyn FnMut(Range<usize>)) {
    if let Some(probe) = Probe::new() {
        for (start, size) in segments(probe) {
            visit(start..start + size);
        }
    }
}

/// What the segments are used for. Looks at `most` of them at most, and multiplies.
pub fn survey(most: usize) -> Option<Survey> {
    let probe = Probe::new()?;
    let segments = segments(probe);
    let step = segments.len().div_ceil(most.max(1)).max(1);
    let mut of = Survey::default();
    let mut records = vec![Page::EMPTY; SLICES];
    let mut asked = 0;
    let mut seen = 0;
    for &segment in segments.keys().step_by(step) {
        if add(&mut of, probe, segment, &mut records, &mut asked).is_some() {
            seen += 1;
        }
    }
    if seen == 0 {
        return None;
    }
    if step > 1 {
        let all = segments.len() as u64;
        for sum in [
            &mut of.pages,
            &mut of.blocks,
            &mut of.free_blocks,
            &mut of.free_pages,
            &mut of.sparse_pages,
            &mut of.sparse_free,
        ] {
            *sum = *sum * all / seen;
        }
    }
    // Our lists have free blocks, which mimalloc counts as in use.
    let (_, held) = record::held(&|_| true);
    let held = (held as u64).min(of.blocks);
    of.blocks -= held;
    of.free_blocks += held;
    // It serves all requests.
    of.limit = u64::MAX >> 1;
    Some(of)
}

/// Adds a segment, whose pages' records are copied to `records`. `None` if it cannot be read.
fn add(
    of: &mut Survey,
    probe: Probe,
    segment: usize,
    records: &mut [Page],
    asked: &mut usize,
) -> Option<()> {
    // SAFETY: these are the bytes of the records, and any bytes make some.
    let into = unsafe {
        std::slice::from_raw_parts_mut(records.as_mut_ptr().cast::<u8>(), size_of_val(records))
    };
    if probe.bytes(segment + V3_13.slices, into) < into.len() {
        return None;
    }
    let header = header_at(probe, segment)?;
    let bytes = header.segment_slices << SLICE_SHIFT;
    let mut at = header.info_slices;
    while at < header.slice_entries.min(SLICES) {
        let page = &records[at];
        let slices = page.slice_count as usize;
        // It is being changed.
        if slices == 0 {
            break;
        }
        let start = segment + (at << SLICE_SHIFT);
        at += slices;
        let room = if page.block_size >= HUGE_BLOCK {
            bytes - (header.info_slices << SLICE_SHIFT).min(bytes)
        } else {
            slices << SLICE_SHIFT
        };
        let mut resident = || {
            let may_ask = room <= MOST_ASKED - *asked;
            *asked += if may_ask { room } else { 0 };
            may_ask.then(|| resident(start, room))
        };
        if page.block_size == 0 {
            of.free_pages += resident().unwrap_or(0);
            continue;
        }
        let block = (page.block_size as usize).min(room);
        let (used, all) = (page.used as usize, usize::from(page.capacity));
        let all = all.min(room / block);
        if used > all {
            continue;
        }
        let free = ((all - used) * block) as u64;
        let mut in_use = (used * block) as u64;
        if block > LARGE && used > 0 {
            // Much of it may have no memory yet.
            in_use = in_use.min(resident().unwrap_or(in_use));
        }
        of.pages += room as u64;
        of.blocks += in_use;
        of.free_blocks += free;
        // At most a quarter is in use.
        if used * block <= room / 4 {
            of.sparse_pages += room as u64;
            of.sparse_free += free;
        }
    }
    Some(())
}

/// The resident bytes of some addresses.
fn resident(start: usize, size: usize) -> u64 {
    let page = page_size();
    let mut are = vec![0_u8; size / page];
    // SAFETY: the kernel checks the addresses, and writes a byte for each page.
    let asked = unsafe { libc::mincore(start as *mut _, size, are.as_mut_ptr()) };
    if asked != 0 {
        return 0;
    }
    are.iter().filter(|is| **is & 1 != 0).count() as u64 * page as u64
}
