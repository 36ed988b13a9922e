//! The rows. They add up to the resident set.
//!
//! The kernel's counts of mappings divide it exactly. Within the arenas of the agent's heap, the heap's own counts do. Within
//! the C library's heaps and the anonymous mappings, its counts do, if they were recorded: then only the part of the
//! interpreter's large blocks is an estimate, and native blocks are what remains of the blocks in use. Otherwise both are
//! estimates. What is allocated but was never written to, or is swapped out, is in no resident set; where counts of
//! allocated memory are larger than the mappings that hold it, a row below zero says by how much.

use nthbyte_profile::meta::READS_ARE_FORBIDDEN;
use nthbyte_profile::{Composition, Domain, Part};
use serde::Serialize;

use super::Row;
use super::live::Live;
use super::moment::OfProcess;
use crate::estimate::Estimate;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Live objects in the heap's blocks, of the sizes that were asked for. PyPy: old objects in arenas.
    Objects,
    /// What those blocks have more.
    Slack,
    /// Large blocks of the interpreter.
    Large,
    /// PyPy: the nursery.
    Nursery,
    /// Free blocks in used pages. PyPy: free memory in arenas.
    FreeBlocks,
    /// Free pages in used arenas.
    FreePages,
    /// Arenas without a used page.
    FreeArenas,
    /// Headers, and memory of arenas that was not used yet.
    Unused,
    /// Blocks of the C library that are not the interpreter's large blocks.
    Native,
    /// Mappings of the program.
    Mappings,
    /// Free memory that the C library keeps.
    LibraryFree,
    /// Allocated, but not in memory: never written to, or swapped out. Below zero.
    NotResident,
    /// Memory from before the session.
    Before,
    /// Code and constants of the program and its libraries.
    FileText,
    /// Data of the program and its libraries.
    FileData,
    /// Stacks.
    Stacks,
    /// Code that was made at run time.
    MachineCode,
    /// Memory shared with other processes.
    Shared,
    /// nthbyte's own.
    Agent,
    /// The rest.
    Unknown,
}

impl Key {
    /// All keys, in the order of the table.
    pub const ALL: [Self; 20] = [
        Self::Objects,
        Self::Slack,
        Self::Large,
        Self::Nursery,
        Self::FreeBlocks,
        Self::FreePages,
        Self::FreeArenas,
        Self::Unused,
        Self::Native,
        Self::Mappings,
        Self::LibraryFree,
        Self::NotResident,
        Self::Before,
        Self::FileText,
        Self::FileData,
        Self::Stacks,
        Self::MachineCode,
        Self::Shared,
        Self::Agent,
        Self::Unknown,
    ];

    /// The row's name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Objects => "live objects",
            Self::Slack => "slack in their blocks",
            Self::Large => "live large blocks",
            Self::Nursery => "nursery",
            Self::FreeBlocks => "free blocks in used pages",
            Self::FreePages => "free pages in used arenas",
            Self::FreeArenas => "free arenas",
            Self::Unused => "headers, and arena memory not used yet",
            Self::Before => "from before the session",
            Self::Native => "native blocks (malloc)",
            Self::Mappings => "mappings of the program",
            Self::LibraryFree => "free memory kept by the C library",
            Self::NotResident => "allocated, but not in memory",
            Self::FileText => "files: code and constants",
            Self::FileData => "files: data",
            Self::Stacks => "stacks of threads",
            Self::MachineCode => "machine code made at run time",
            Self::Shared => "shared memory",
            Self::Agent => "nthbyte itself",
            Self::Unknown => "unknown",
        }
    }

    /// Whose memory it is: the interpreter's or native code's; `None` for neither.
    #[must_use]
    pub fn domain(self) -> Option<Domain> {
        match self.group() {
            "native" => Some(Domain::Native),
            "Python, live" | "Python, free" => Some(Domain::Python),
            _ => None,
        }
    }

    /// The group of rows that it belongs to.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Objects | Self::Slack | Self::Large | Self::Nursery => "Python, live",
            Self::FreeBlocks | Self::FreePages | Self::FreeArenas | Self::Unused => "Python, free",
            Self::Native | Self::Mappings | Self::LibraryFree | Self::NotResident => "native",
            Self::Before
            | Self::FileText
            | Self::FileData
            | Self::Stacks
            | Self::MachineCode
            | Self::Shared => "program",
            Self::Agent => "nthbyte",
            Self::Unknown => "unknown",
        }
    }
}

/// Rows by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
}

impl Rows {
    fn count(&mut self, key: Key, bytes: f64) {
        self.put(key, Estimate::exact(bytes), true);
    }

    fn put(&mut self, key: Key, bytes: Estimate, counted: bool) {
        match self.rows.iter_mut().find(|row| row.key == key) {
            Some(row) => {
                row.bytes = sum(&row.bytes, &bytes);
                row.counted &= counted;
            }
            None => self.rows.push(Row {
                key,
                name: key.name(),
                group: key.group(),
                bytes,
                counted,
            }),
        }
    }

    /// Adds those of another process.
    pub(super) fn add(&mut self, other: &Self) {
        for row in &other.rows {
            self.put(row.key, row.bytes, row.counted);
        }
    }

    /// Those that are not empty, in order.
    pub(super) fn finish(mut self) -> Vec<Row> {
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
    let most = most.max(0.0);
    Estimate {
        estimate: of.estimate.min(most),
        low: of.low.min(most),
        high: of.high.min(most),
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

/// The rows of a process.
pub(super) fn rows(of: &OfProcess<'_>, live: &Live) -> Rows {
    let composition = of.composition;
    let part = |part: Part| composition.get(part).unwrap_or(0) as f64;
    let mut rows = Rows::default();
    for (key, bytes) in [
        (Key::FileText, part(Part::FileText)),
        (Key::FileData, part(Part::FileData)),
        (Key::Stacks, part(Part::Stacks)),
        (Key::MachineCode, part(Part::MachineCode)),
        (Key::Shared, part(Part::Shared)),
    ] {
        rows.count(key, bytes);
    }
    heap(composition, live, &mut rows);
    // In profiles of earlier versions, the agent's small blocks are in the C library's heaps, which have at least so much.
    let agent = part(Part::AgentBlocks).min(part(Part::LibraryHeap));
    rows.count(
        Key::Agent,
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
        rows.count(Key::Unknown, arenas);
        return;
    }
    let mut left = arenas;
    // A survey may be of another microsecond than the kernel's list: no part is larger than what is there.
    let mut take = |bytes: f64| {
        let taken = bytes.min(left);
        left -= taken;
        taken
    };
    let blocks = take(part(Part::HeapBlocks));
    let free = [
        (Key::FreeBlocks, take(part(Part::HeapFreeBlocks))),
        (Key::FreePages, take(part(Part::HeapFreePages))),
        (Key::FreeArenas, take(part(Part::HeapFreeArenas))),
    ];
    let room = live.sampled_room.min(blocks);
    let blocks = blocks - room;
    rows.count(Key::Agent, room);
    let slack = at_most(&live.slack, blocks);
    rows.put(Key::Objects, rest(blocks, &slack), false);
    rows.put(Key::Slack, slack, false);
    for (key, bytes) in free {
        rows.count(key, bytes);
    }
    rows.count(Key::Unused, left);
}

/// What the C library's heaps and the anonymous mappings hold.
struct Pool {
    /// The C library's heaps, without the agent's blocks and those from before the session.
    heaps: f64,
    /// Other anonymous memory.
    anonymous: f64,
    /// Blocks in use: in the heaps, and with mappings of their own; `None` if that was not recorded.
    used: Option<(f64, f64)>,
}

impl Pool {
    /// `before`: blocks in use from before the session, in the heaps and with mappings.
    fn of(composition: &Composition, agent: f64, before: (f64, f64), anonymous: f64) -> Self {
        let part = |part: Part| composition.get(part).map(|bytes| bytes as f64);
        let heaps = part(Part::LibraryHeap).unwrap_or(0.0) - agent;
        let used = part(Part::LibraryUsed).zip(part(Part::LibraryMapped));
        Self {
            heaps: (heaps - before.0).max(0.0),
            anonymous,
            used: used.map(|(used, mapped)| {
                let mapped = mapped - part(Part::AgentMapped).unwrap_or(0.0) - before.1;
                ((used - agent - before.0).max(0.0), mapped.max(0.0))
            }),
        }
    }

    /// Fills the rows of what is alive and of what is free. `known`: blocks of the interpreter that are in the pool, of which
    /// rows exist or are made here.
    fn share_out(&self, known: &Estimate, live: &Live, has_native: bool, rows: &mut Rows) {
        let mut not_resident = 0.0;
        let mut left;
        let native;
        if let Some((in_heaps, mapped)) = self.used {
            let free = self.heaps - in_heaps;
            rows.count(Key::LibraryFree, free.max(0.0));
            not_resident += (-free).max(0.0);
            left = self.anonymous - mapped;
            not_resident += (-left).max(0.0);
            left = left.max(0.0);
            native = rest(in_heaps + mapped, known);
            let missing = (known.estimate - in_heaps - mapped).max(0.0);
            // Another allocator serves the interpreter: its blocks are in other mappings.
            let elsewhere = missing.min(left);
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
        rows.put(Key::Native, native, false);
        if has_native {
            if live.native.low > native.high {
                let elsewhere = (live.native.estimate - native.estimate).min(left);
                rows.put(Key::Native, Estimate::exact(elsewhere), false);
                left -= elsewhere;
            }
            let mappings = at_most(&live.mappings, left);
            left -= mappings.estimate;
            rows.put(Key::Mappings, mappings, false);
        }
        if not_resident > 0.0 {
            rows.put(Key::NotResident, Estimate::exact(-not_resident), false);
        }
        rows.put(Key::Unknown, Estimate::exact(left), false);
    }
}

/// CPython, and native code alone, which has no large blocks of an interpreter.
fn cpython(of: &OfProcess<'_>, live: &Live, agent: f64, rows: &mut Rows) {
    let part = |part: Part| of.composition.get(part).unwrap_or(0) as f64;
    let first = |part: Part| of.first.and_then(|first| first.get(part)).unwrap_or(0) as f64;
    let before = (first(Part::LibraryUsed) - first(Part::AgentBlocks))
        .clamp(0.0, (part(Part::LibraryHeap) - agent).max(0.0));
    let mapped = (first(Part::LibraryMapped) - first(Part::AgentMapped)).max(0.0);
    rows.count(Key::Before, before + part(Part::Earlier));
    let pool = Pool::of(
        of.composition,
        agent,
        (before, mapped),
        part(Part::Anonymous),
    );
    let all = pool.heaps + pool.anonymous;
    let most = match pool.used {
        // If even the lower end is larger, another allocator serves the interpreter.
        Some((heaps, mapped)) if live.large.low <= heaps + mapped => heaps + mapped,
        _ => all,
    };
    let large = at_most(&live.large, most);
    if of.has_interpreter {
        rows.put(Key::Large, large, false);
    }
    pool.share_out(&large, live, of.has_native, rows);
}

/// PyPy takes its arenas, its nursery and its large objects from the C library, and counts them.
fn pypy(of: &OfProcess<'_>, live: &Live, agent: f64, rows: &mut Rows) {
    let part = |part: Part| of.composition.get(part).unwrap_or(0) as f64;
    let objects = part(Part::PypyObjects);
    // The total of the arenas is not always found. Then what is free in them counts as native blocks.
    let arenas = part(Part::PypyArenas).max(objects);
    let parts = [
        (Key::Objects, objects),
        (Key::FreeBlocks, arenas - objects),
        (Key::Large, part(Part::PypyLarge)),
        (Key::Nursery, part(Part::PypyNursery)),
    ];
    let mut known = 0.0;
    for (key, bytes) in parts {
        rows.count(key, bytes);
        known += bytes;
    }
    // Its memory from before the session is of the same kinds.
    let anonymous = part(Part::Anonymous) + part(Part::Earlier);
    let pool = Pool::of(of.composition, agent, (0.0, 0.0), anonymous);
    pool.share_out(&Estimate::exact(known), live, of.has_native, rows);
}

/// What is not known.
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
