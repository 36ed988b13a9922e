//! The rows. They add up to the resident set.
//!
//! The kernel's counts of mappings divide it exactly. Within the arenas of the agent's heap, the heap's own counts do. Within
//! the C library's heaps and the anonymous mappings, its counts do, if they were recorded: then only the part of the
//! interpreter's large blocks is an estimate, and native blocks are what remains of the blocks in use. Otherwise both are
//! estimates. Memory that was never written to, or is swapped out, is in no resident set; where counts of allocated memory
//! are larger than the mappings that hold it, a row below zero says by how much.
//!
//! What the C library had in use when the session began is taken to be in use still, as long as the samples agree. Where they
//! find more live blocks than there is room for beside it ([`Before`]), some of it was freed.

use nthbyte_profile::meta::READS_ARE_FORBIDDEN;
use nthbyte_profile::{Composition, Part};

use super::MemoryRow;
use super::key::MemoryKey;
use super::live::Live;
use super::moment::OfProcess;
use crate::estimate::Estimate;

/// Rows by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: Vec<MemoryRow>,
}

impl Rows {
    fn count(&mut self, key: MemoryKey, bytes: f64) {
        self.put(key, Estimate::exact(bytes), true);
    }

    fn put(&mut self, key: MemoryKey, bytes: Estimate, counted: bool) {
        match self.rows.iter_mut().find(|row| row.key == key) {
            Some(row) => {
                row.bytes = sum(&row.bytes, &bytes);
                row.counted &= counted;
            }
            None => self.rows.push(MemoryRow {
                key,
                name: key.name(),
                group: key.group(),
                bytes,
                counted,
            }),
        }
    }

    /// Adds the rows of another process.
    pub(super) fn add(&mut self, other: &Self) {
        for row in &other.rows {
            self.put(row.key, row.bytes, row.counted);
        }
    }

    /// Those that are not empty, in order.
    pub(super) fn finish(mut self) -> Vec<MemoryRow> {
        self.rows
            .retain(|row| row.bytes.estimate != 0.0 || row.bytes.high > row.bytes.low);
        self.rows.sort_by_key(|row| row.key);
        self.rows
    }
}

/// The ends are added: intervals of processes are independent, so this one is wider than needed.
fn sum(one: &Estimate, other: &Estimate) -> Estimate {
    Estimate {
        estimate: one.estimate + other.estimate,
        low: one.low + other.low,
        high: one.high + other.high,
    }
}

/// An estimate that is at most so much.
fn at_most(of: &Estimate, most: f64) -> Estimate {
    bounded(of, most, most)
}

/// An estimate that is rather not more than `likely`, and never more than `most`.
fn bounded(of: &Estimate, likely: f64, most: f64) -> Estimate {
    let likely = likely.max(0.0);
    Estimate {
        estimate: of.estimate.min(likely),
        low: of.low.min(likely),
        high: of.high.min(most.max(likely)),
    }
}

/// An estimate without what a count says of it.
fn less(of: &Estimate, taken: f64) -> Estimate {
    Estimate {
        estimate: (of.estimate - taken).max(0.0),
        low: (of.low - taken).max(0.0),
        high: (of.high - taken).max(0.0),
    }
}

/// What an estimate leaves of a count.
fn rest(of: f64, taken: &Estimate) -> Estimate {
    Estimate {
        estimate: (of - taken.estimate).max(0.0),
        low: (of - taken.high).max(0.0),
        high: (of - taken.low).max(0.0),
    }
}

pub(super) fn rows(of: &OfProcess<'_>, live: &Live) -> Rows {
    let composition = of.composition;
    let part = |part: Part| composition.get(part).unwrap_or(0) as f64;
    let mut rows = Rows::default();
    for (key, bytes) in [
        (MemoryKey::FileText, part(Part::FileText)),
        (MemoryKey::FileData, part(Part::FileData)),
        (MemoryKey::CudaFiles, part(Part::CudaFiles)),
        (MemoryKey::Pinned, part(Part::Pinned)),
        (MemoryKey::Stacks, part(Part::Stacks)),
        (MemoryKey::MachineCode, part(Part::MachineCode)),
        (MemoryKey::Shared, part(Part::Shared)),
    ] {
        rows.count(key, bytes);
    }
    // CUDA maps what it pins, so it is among the samples of mappings, too.
    let live = &Live {
        mappings: less(&live.mappings, part(Part::Pinned)),
        ..*live
    };
    heap(composition, live, &mut rows);
    // In profiles of earlier versions, the agent's small blocks are in the C library's heaps, which have at least so much.
    let agent = part(Part::AgentBlocks).min(part(Part::LibraryHeap));
    rows.count(
        MemoryKey::Agent,
        part(Part::AgentImages) + part(Part::AgentMemory) + agent,
    );
    if of.is_pypy {
        pypy(of, live, agent, &mut rows);
    } else {
        cpython(of, live, agent, &mut rows);
    }
    rows
}

/// The rows of the arenas of the agent's heap.
fn heap(composition: &Composition, live: &Live, rows: &mut Rows) {
    let part = |part: Part| composition.get(part).unwrap_or(0) as f64;
    let arenas = part(Part::Arenas);
    if arenas == 0.0 {
        return;
    }
    if composition.get(Part::HeapBlocks).is_none() {
        rows.count(MemoryKey::Unknown, arenas);
        return;
    }
    let mut left = arenas;
    // A survey may be of another microsecond than the kernel's list: no part is larger than the mapping.
    let mut take = |bytes: f64| {
        let taken = bytes.min(left);
        left -= taken;
        taken
    };
    let blocks = take(part(Part::HeapBlocks));
    let free = [
        (MemoryKey::FreeBlocks, take(part(Part::HeapFreeBlocks))),
        (MemoryKey::FreePages, take(part(Part::HeapFreePages))),
        (MemoryKey::FreeArenas, take(part(Part::HeapFreeArenas))),
    ];
    let room = live.sampled_room.min(blocks);
    let blocks = blocks - room;
    rows.count(MemoryKey::Agent, room);
    let slack = at_most(&live.slack, blocks);
    rows.put(MemoryKey::Objects, rest(blocks, &slack), false);
    rows.put(MemoryKey::Slack, slack, false);
    for (key, bytes) in free {
        rows.count(key, bytes);
    }
    rows.count(MemoryKey::Unused, left);
}

/// Memory in use when the session began. Of none of it is it known whether it was freed since.
#[derive(Default)]
struct Before {
    /// Blocks in the C library's heaps.
    heaps: f64,
    /// Blocks of the C library with mappings of their own.
    mapped: f64,
    /// The resident part of anonymous mappings from then, the mappings of such blocks included.
    anonymous: f64,
}

impl Before {
    fn of(of: &OfProcess<'_>, agent: f64) -> Self {
        let now = |part: Part| of.composition.get(part).map(|bytes| bytes as f64);
        let part = |part: Part| now(part).unwrap_or(0.0);
        let first = |part: Part| of.first.and_then(|first| first.get(part)).unwrap_or(0) as f64;
        let heaps = first(Part::LibraryUsed) - first(Part::AgentBlocks);
        let mapped = first(Part::LibraryMapped) - first(Part::AgentMapped);
        // No more than there is now, and than is in use now.
        let there = part(Part::LibraryHeap).min(now(Part::LibraryUsed).unwrap_or(f64::MAX)) - agent;
        let in_use = now(Part::LibraryMapped).unwrap_or(f64::MAX) - part(Part::AgentMapped);
        Self {
            heaps: heaps.min(there).max(0.0),
            mapped: mapped.min(in_use).max(0.0),
            anonymous: part(Part::Earlier),
        }
    }

    /// How much of it may have made room for blocks of the session. `is_counted`: the C library's counts are known. If they are
    /// not, it may be all of it; else only its blocks.
    fn most(&self, is_counted: bool) -> f64 {
        let elsewhere = if is_counted {
            self.mapped
        } else {
            self.anonymous
        };
        self.heaps + elsewhere
    }

    /// Takes off what has made room for blocks of the session: returns how much of the anonymous memory is no longer from before
    /// it.
    fn make_room(&mut self, bytes: f64) -> f64 {
        let in_heaps = bytes.min(self.heaps);
        self.heaps -= in_heaps;
        let elsewhere = bytes - in_heaps;
        self.mapped = (self.mapped - elsewhere).max(0.0);
        let resident = elsewhere.min(self.anonymous);
        self.anonymous -= resident;
        resident
    }
}

/// What the C library's heaps and the anonymous mappings hold.
struct Pool {
    /// The C library's heaps, without the agent's blocks and those from before the session.
    heaps: f64,
    /// Other anonymous memory.
    anonymous: f64,
    /// Blocks in use: in the heaps, and with mappings of their own; `None` if that was not recorded.
    used: Option<(f64, f64)>,
    /// If the samples have made it larger ([`Before::make_room`]): the most that blocks in use may be. Then no count says how much is
    /// left for native blocks.
    most: Option<f64>,
}

impl Pool {
    /// `anonymous`: without mappings from before the session.
    fn of(composition: &Composition, agent: f64, before: &Before, anonymous: f64) -> Self {
        let part = |part: Part| composition.get(part).map(|bytes| bytes as f64);
        let heaps = part(Part::LibraryHeap).unwrap_or(0.0) - agent;
        let used = part(Part::LibraryUsed).zip(part(Part::LibraryMapped));
        Self {
            heaps: (heaps - before.heaps).max(0.0),
            anonymous,
            used: used.map(|(used, mapped)| {
                let mapped = mapped - part(Part::AgentMapped).unwrap_or(0.0) - before.mapped;
                ((used - agent - before.heaps).max(0.0), mapped.max(0.0))
            }),
            most: None,
        }
    }

    /// All that it holds.
    fn all(&self) -> f64 {
        self.heaps + self.anonymous
    }

    /// The most that blocks in use can be.
    fn room(&self) -> f64 {
        self.used
            .map_or(self.all(), |(heaps, mapped)| heaps + mapped)
    }

    /// Fills the rows of live and of free blocks. `known`: blocks of the interpreter that are in the pool, of which
    /// rows exist or are made here.
    fn share_out(&self, known: &Estimate, live: &Live, has_native: bool, rows: &mut Rows) {
        let mut not_resident = 0.0;
        let mut left;
        let native;
        if let Some((in_heaps, mapped)) = self.used {
            // The C library counts the addresses of its blocks with mappings of their own. No more of them is in memory
            // than what other mappings leave.
            let others = if has_native {
                live.mappings.estimate
            } else {
                0.0
            };
            let mapped = mapped.min((self.anonymous - others).max(0.0));
            let free = self.heaps - in_heaps;
            rows.count(MemoryKey::LibraryFree, free.max(0.0));
            not_resident += (-free).max(0.0);
            left = self.anonymous - mapped;
            not_resident += (-left).max(0.0);
            left = left.max(0.0);
            native = match self.most.filter(|_| has_native) {
                Some(most) => {
                    let left = in_heaps + mapped - known.estimate;
                    bounded(&live.native, left, most - known.low)
                }
                None => rest(in_heaps + mapped, known),
            };
            let missing = (known.estimate - in_heaps - mapped).max(0.0);
            // Another allocator serves the interpreter: its blocks are in other mappings. Where these are the program's own,
            // only as far as the estimate's error cannot be the reason.
            let certain = (known.low - in_heaps - mapped).max(0.0);
            let elsewhere = missing.min((left - others).max(certain)).min(left);
            left -= elsewhere;
            not_resident += missing - elsewhere;
        } else {
            native = if has_native {
                live.native
            } else {
                Estimate::exact(0.0)
            };
            left = self.heaps + self.anonymous - known.estimate - native.estimate;
            not_resident += (-left).max(0.0);
            left = left.max(0.0);
        }
        rows.put(MemoryKey::Native, native, false);
        if has_native {
            if live.native.low > native.high {
                let elsewhere = (live.native.estimate - native.estimate).min(left);
                rows.put(MemoryKey::Native, Estimate::exact(elsewhere), false);
                left -= elsewhere;
            }
            let mappings = at_most(&live.mappings, left);
            left -= mappings.estimate;
            rows.put(MemoryKey::Mappings, mappings, false);
        }
        if not_resident > 0.0 {
            rows.put(
                MemoryKey::NotResident,
                Estimate::exact(-not_resident),
                false,
            );
        }
        rows.put(MemoryKey::Unknown, Estimate::exact(left), false);
    }
}

/// CPython, and native code alone, which has no large blocks of an interpreter.
fn cpython(of: &OfProcess<'_>, live: &Live, agent: f64, rows: &mut Rows) {
    let part = |part: Part| of.composition.get(part).unwrap_or(0) as f64;
    let mut before = Before::of(of, agent);
    let anonymous = part(Part::Anonymous);
    let mut pool = Pool::of(of.composition, agent, &before, anonymous);
    let most = pool.room() + before.most(pool.used.is_some());
    let own = match of.has_native {
        true => sum(&live.large, &live.native),
        false => live.large,
    };
    // If even the lower end has no room, blocks from before the session were freed. If it is more than all blocks in use, another
    // allocator serves the interpreter.
    if own.low > pool.room() && own.low <= most {
        let missing = own.estimate.min(most) - pool.room();
        let resident = before.make_room(missing);
        pool = Pool {
            most: Some(most),
            ..Pool::of(of.composition, agent, &before, anonymous + resident)
        };
    }
    rows.count(MemoryKey::Before, before.heaps + before.anonymous);
    let large = match pool.used {
        Some(_) if live.large.low > pool.room() => at_most(&live.large, pool.all()),
        _ => bounded(&live.large, pool.room(), most),
    };
    if of.has_interpreter {
        rows.put(MemoryKey::Large, large, false);
    }
    pool.share_out(&large, live, of.has_native, rows);
}

/// PyPy takes its arenas, its nursery and its large objects from the C library, and counts them.
fn pypy(of: &OfProcess<'_>, live: &Live, agent: f64, rows: &mut Rows) {
    let part = |part: Part| of.composition.get(part).unwrap_or(0) as f64;
    let objects = part(Part::PypyObjects);
    // The total of the arenas is not always found. Then free blocks in them count as native blocks.
    let arenas = part(Part::PypyArenas).max(objects);
    let parts = [
        (MemoryKey::Objects, objects),
        (MemoryKey::FreeBlocks, arenas - objects),
        (MemoryKey::Large, part(Part::PypyLarge)),
        (MemoryKey::Nursery, part(Part::PypyNursery)),
    ];
    let mut known = 0.0;
    for (key, bytes) in parts {
        rows.count(key, bytes);
        known += bytes;
    }
    // Its memory from before the session is of the same kinds.
    let anonymous = part(Part::Anonymous) + part(Part::Earlier);
    let pool = Pool::of(of.composition, agent, &Before::default(), anonymous);
    pool.share_out(&Estimate::exact(known), live, of.has_native, rows);
}

/// The notes about memory that is not known.
pub(super) fn notes(of: &OfProcess<'_>, live: &Live) -> Vec<String> {
    let mut notes = Vec::new();
    let has = |part: Part| of.composition.get(part).is_some();
    if !has(Part::LibraryUsed) {
        notes.push(if of.has_native {
            "the C library's own counts are not known: native blocks are estimated".to_owned()
        } else {
            "the C library's own counts are not known, and native memory was not sampled: what native code allocated is \
             unknown"
                .to_owned()
        });
    } else if !of.has_native {
        notes.push(
            "native memory was not sampled: mappings of the program are part of what is unknown"
                .to_owned(),
        );
    }
    if of.has_interpreter && !of.is_pypy && !has(Part::HeapBlocks) {
        let why = match of.may_read {
            true => String::new(),
            false => format!(": {READS_ARE_FORBIDDEN}"),
        };
        notes.push(format!(
            "Python's heap could not be read, so its objects, free blocks and free pages are part of what is unknown{why}"
        ));
    }
    if of.is_pypy && !has(Part::PypyObjects) {
        notes.push(
            "PyPy's own totals were not found: its objects count as native blocks".to_owned(),
        );
    } else if of.is_pypy && !has(Part::PypyArenas) {
        notes.push(
            "the size of PyPy's arenas was not found: what is free in them counts as native blocks"
                .to_owned(),
        );
    }
    if !live.has_samples && !of.is_pypy && of.has_interpreter {
        notes.push("there are no samples: live large blocks count as native".to_owned());
    }
    notes
}
