//! Sampled mappings, and how much of each is in memory.
//!
//! A mapping is address space until it is touched: an allocator may reserve a gigabyte and use a hundredth of it. So a
//! sampled mapping is no sample yet. Its bytes become samples when they are seen to be in memory:
//!
//! ```text
//! mmap ─ sample points in the mapping ─▶ Mapping: thread, stack, ranges of addresses
//!                                           │ a look: resident bytes
//!              more than in its pieces ◀────┤
//!      ▼                                    └───▶ fewer
//! a piece: an allocation of so many bytes,        pieces are freed
//! if one of the sample points lies in them
//! ```
//!
//! A look is made by the writer thread, at intervals and whenever it records what the resident set is made of, and by the
//! thread that unmaps or frees the memory, just before. Memory found at the first look counts from the request on.
//!
//! *Why that is unbiased.* The sample points of a mapping are a Poisson process over its bytes. Which of its pages are touched
//! does not depend on them, so the points in the touched part are one, too: a binomial part of those that are left. A
//! mapping of many periods is met in any case; the points of its pieces are drawn when they are needed.
//!
//! Large blocks of the C library with a mapping of their own are treated in the same way.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::preload::LAZY;
use nthbyte_profile::event::{Allocation, LostKind, Nanos, NodeId, SampleId};
use nthbyte_sampling::{Period, Random};

use crate::begin::record_now;
use crate::composition::resident::{ResidentPages, resident};
use crate::native::pieces::SampledMapping;
use crate::recording::PerEpoch;
use crate::recording::Recording;
use crate::recording::RecordingCell;

#[cfg(test)]
pub(crate) use crate::native::pieces::points_of;

/// In the upper half of a token, beside the epoch: the lower half is the number of a mapping.
pub(crate) const FLAG: u32 = (LAZY >> 32) as u32;
/// The largest number of mappings that are looked at.
const MOST: usize = 4096;
/// Of a part of a mapping, at most this many bytes are looked at: half a millisecond for each untouched 8 GiB.
const MOST_LOOKED_AT: usize = 64 << 30;
/// Mappings that one call of `munmap` is compared with.
const AT_ONCE: usize = 8;
/// Room in the ring that a look leaves free, in events.
const ROOM: usize = 256;

/// The mappings, in the order of their numbers.
struct List {
    mappings: Vec<SampledMapping>,
    next: u32,
    random: Random,
}

impl Default for List {
    fn default() -> Self {
        LOOKED_AT.store(0, Relaxed);
        Self {
            mappings: Vec::new(),
            next: 0,
            random: Random::new(nthbyte_host::clock::monotonic_nanos()),
        }
    }
}

static LIST: RecordingCell<Option<PerEpoch<List>>> = RecordingCell::new(None);

/// The number of mappings, so that most calls of `munmap` take no lock.
static LOOKED_AT: AtomicUsize = AtomicUsize::new(0);

/// The list of this recording's profile. In the child of a fork, mappings of the parent belong to the parent's profile.
fn list<'a>(recording: &'a mut Recording<'_>) -> &'a mut List {
    let epoch = recording.epoch();
    LIST.with(recording).get_or_insert_default().of(epoch)
}

/// Adds a sampled mapping. Returns its number; `None` if there is no room: then it counts as a whole. `has_stack`: whether
/// the stack of the sample is known.
pub(crate) fn add(
    recording: &mut Recording<'_>,
    sample: Allocation,
    period: u64,
    range: Range<usize>,
    has_stack: bool,
) -> Option<u32> {
    let list = list(recording);
    let mut parts = Vec::new();
    if list.mappings.len() >= MOST
        || list.mappings.try_reserve(1).is_err()
        || parts.try_reserve_exact(1).is_err()
    {
        return None;
    }
    let number = list.next;
    list.next = number.checked_add(1)?;
    parts.push(range);
    list.mappings.push(SampledMapping {
        number,
        parts,
        sample,
        period: Period::new(period).unwrap_or(Period::EVERY),
        points: sample.points,
        pieces: Vec::new(),
        bytes: 0,
        was_seen: false,
        has_stack,
        freed: None,
    });
    LOOKED_AT.store(list.mappings.len(), Relaxed);
    Some(number)
}

/// Completes a mapping that was added without its stack; `None` loses it.
pub(crate) fn complete(recording: &mut Recording<'_>, number: u32, stack: Option<NodeId>) {
    with(recording, number, |mapping, recording, random| {
        let Some(stack) = stack else {
            recording.lost(LostKind::Allocations, 1);
            return true;
        };
        mapping.sample.stack = stack;
        mapping.has_stack = true;
        let seen = std::mem::take(&mut mapping.bytes);
        mapping.pieces.clear();
        mapping.grow(seen, mapping.sample.time, recording, random);
        let is_freed = mapping.freed.is_some();
        if let Some(time) = mapping.freed {
            mapping.end(time, recording);
        }
        is_freed
    });
}

/// The samples of a mapping that are alive.
pub(crate) fn samples_of(recording: &mut Recording<'_>, number: u32) -> Vec<SampleId> {
    let list = list(recording);
    let at = list.mappings.binary_search_by_key(&number, |of| of.number);
    at.map_or_else(|_| Vec::new(), |at| list.mappings[at].samples())
}

/// Records that the memory of a mapping is given back. Nobody looks at it any more.
pub(crate) fn freed(recording: &mut Recording<'_>, number: u32, time: Nanos) {
    with(recording, number, |mapping, recording, _| {
        mapping.end(time, recording)
    });
}

/// Looks at a mapping that is about to be freed. Runs in the thread that frees it.
pub(crate) fn look_at(number: u32) {
    let Some(mut recording) = record_now() else {
        return;
    };
    let mut parts = [const { 0..0 }; AT_ONCE];
    let mut count = 0;
    with(&mut recording, number, |mapping, _, _| {
        // What was seen whole needs no look.
        if mapping.bytes < mapping.size() {
            count = mapping.parts.len().min(AT_ONCE);
        }
        parts[..count].clone_from_slice(&mapping.parts[..count]);
        false
    });
    drop(recording);
    if count == 0 {
        return;
    }
    let found = parts[..count]
        .iter()
        .map(|part| resident(looked_at(part)))
        .sum();
    if let Some(mut recording) = record_now() {
        let now = recording.now();
        with(&mut recording, number, |mapping, recording, random| {
            mapping.seen(found, now, recording, random);
            false
        });
    }
}

/// Looks at memory that is about to be unmapped, and forgets that it was mapped. Returns whether that was possible.
/// Runs in the thread that unmaps it.
pub(crate) fn unmap(range: &Range<usize>) -> bool {
    if LOOKED_AT.load(Relaxed) == 0 {
        return true;
    }
    let mut found = [const { (0_u32, 0..0_usize, 0_u64) }; AT_ONCE];
    let mut count = 0;
    let Some(mut recording) = record_now() else {
        return false;
    };
    'all: for mapping in &list(&mut recording).mappings {
        for part in &mapping.parts {
            let common = part.start.max(range.start)..part.end.min(range.end);
            if common.is_empty() {
                continue;
            }
            found[count] = (mapping.number, common, 0);
            count += 1;
            if count == AT_ONCE {
                break 'all;
            }
        }
    }
    if count == 0 {
        return true;
    }
    drop(recording);
    let found = &mut found[..count];
    for (_, part, bytes) in &mut *found {
        *bytes = resident(looked_at(part));
    }
    let Some(mut recording) = record_now() else {
        return false;
    };
    let now = recording.now();
    for (number, part, bytes) in &*found {
        with(&mut recording, *number, |mapping, recording, random| {
            mapping.unmap(part, *bytes, now, recording, random)
        });
    }
    true
}

/// Looks at all mappings, as of the time `now`: `all`, or only mappings that were not wholly in memory yet. Returns
/// whether there was any.
pub(crate) fn look(now: Nanos, all: bool) -> bool {
    if LOOKED_AT.load(Relaxed) == 0 {
        return false;
    }
    let Some(mut recording) = record_now() else {
        return false;
    };
    let mut parts: Vec<(Range<usize>, u32)> = Vec::new();
    for mapping in &list(&mut recording).mappings {
        if all || mapping.bytes < mapping.size() {
            for part in &mapping.parts {
                if parts.try_reserve(1).is_err() {
                    return false;
                }
                parts.push((part.clone(), mapping.number));
            }
        }
    }
    drop(recording);
    parts.sort_unstable_by_key(|(part, _)| part.start);
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut found: Vec<(u32, u64)> = Vec::new();
    if found.try_reserve_exact(parts.len()).is_err()
        || ranges.try_reserve_exact(parts.len()).is_err()
    {
        return false;
    }
    ranges.extend(parts.iter().map(|(part, _)| looked_at(part)));
    ResidentPages::open().each(&ranges, |at, bytes| found.push((parts[at].1, bytes)));
    found.sort_unstable_by_key(|&(number, _)| number);
    let Some(mut recording) = record_now() else {
        return false;
    };
    for of_one in found.chunk_by(|one, other| one.0 == other.0) {
        // Growth that finds no room is found by the next look.
        if recording.room() < ROOM {
            break;
        }
        let bytes = of_one.iter().map(|&(_, bytes)| bytes).sum();
        with(&mut recording, of_one[0].0, |mapping, recording, random| {
            mapping.seen(bytes, now, recording, random);
            false
        });
    }
    !parts.is_empty()
}

fn looked_at(part: &Range<usize>) -> Range<usize> {
    part.start..part.end.min(part.start.saturating_add(MOST_LOOKED_AT))
}

/// Calls `work` with a mapping, if it is in the list; the mapping is removed if it returns true.
fn with(
    recording: &mut Recording<'_>,
    number: u32,
    work: impl FnOnce(&mut SampledMapping, &mut Recording<'_>, &mut Random) -> bool,
) {
    let known = list(recording);
    let Ok(at) = known.mappings.binary_search_by_key(&number, |of| of.number) else {
        return;
    };
    // Recording events does not use the list.
    let mut mapping = known.mappings.remove(at);
    let mut random = Random::new(known.random.next_u64());
    let is_over = work(&mut mapping, recording, &mut random);
    let known = list(recording);
    if !is_over {
        // There is room: it was removed just now.
        known.mappings.insert(at, mapping);
    }
    LOOKED_AT.store(known.mappings.len(), Relaxed);
}
