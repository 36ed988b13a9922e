//! What the resident set of a process was made of, at some moments.
//!
//! An agent's writer thread reads the kernel's list of mappings, the C library's figures and the heap's headers at
//! intervals, and records a [`Composition`]. Each [`Part`] is a count of bytes. Reports derive the rest: what samples
//! say of live objects, and what remains unknown.
//!
//! So that a report can say which survivors keep nearly empty pages from being used, a composition also has the use of
//! the heap's arenas, by block size ([`Occupancy`]); and each sample has the arena in which its block would lie unsampled
//! ([`ArenaRun`]).

use crate::event::{Nanos, SampleId};
use crate::varint::{put, take, unzigzag, zigzag};

/// The kind of an event that holds a [`Composition`].
pub const COMPOSITION: u8 = 70;
/// The kind of an event that holds [`ArenaRun`]s.
pub const ARENAS: u8 = 71;

macro_rules! parts {
    ($($(#[$doc:meta])+ $name:ident = $number:literal),* $(,)?) => {
        /// A part of the resident set, or another count of bytes. Files have the same numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Part {
            $($(#[$doc])+ $name = $number,)*
        }

        impl Part {
            /// All parts, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The part with a number; `None` if this version does not know it.
            #[must_use]
            pub const fn of_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

parts! {
    /// The resident set: the sum over all mappings.
    Resident = 1,
    /// Swapped out; not resident.
    Swapped = 2,
    /// Files that are mapped, as they are on the disk: code and constants of the program and its libraries.
    FileText = 3,
    /// Pages of mapped files that the process has written to, and zeroed data of libraries.
    FileData = 4,
    /// Memory that is shared with other processes: files in memory.
    Shared = 5,
    /// Stacks of threads.
    Stacks = 6,
    /// The C library's heaps: the break and its arenas.
    LibraryHeap = 7,
    /// Mapped files of nthbyte, resident pages of its zeroed data included.
    AgentImages = 8,
    /// Other mappings and large blocks of nthbyte's agent.
    AgentMemory = 9,
    /// Arenas of the agent's heap for small blocks of the interpreter.
    Arenas = 10,
    /// Anonymous memory with code: what a just-in-time compiler made.
    MachineCode = 11,
    /// Anonymous memory from before the session: the interpreter's own arenas.
    Earlier = 12,
    /// Other anonymous memory: large blocks of the C library, and mappings of the program, shared ones too.
    Anonymous = 13,
    /// Mapped libraries of CUDA, with what the process has written to of them.
    CudaFiles = 14,
    /// Memory of the host that is pinned for a GPU: what is mapped of its devices, and anonymous memory that is shared with
    /// children where such a device is mapped.
    Pinned = 15,
    /// The C library's count of blocks in use in its heaps, headers included.
    LibraryUsed = 20,
    /// Free blocks in the C library's heaps, whether they have memory behind them or not.
    LibraryFree = 21,
    /// Blocks of the C library with a mapping of their own, whether they have memory behind them or not.
    LibraryMapped = 22,
    /// Blocks of nthbyte's agent in the C library's heaps. No longer written: its memory is not the C library's.
    AgentBlocks = 23,
    /// Bytes of [`LibraryMapped`](Self::LibraryMapped) in blocks of nthbyte's agent. No longer written either.
    AgentMapped = 24,
    /// Pages of the agent's heap that hold blocks.
    HeapPages = 30,
    /// Blocks in use in those pages, of the size that they were rounded up to.
    HeapBlocks = 31,
    /// Free blocks in those pages that were in use before.
    HeapFreeBlocks = 32,
    /// Free pages that still have memory behind them, in arenas with pages in use.
    HeapFreePages = 33,
    /// The same in arenas without a page in use.
    HeapFreeArenas = 34,
    /// Pages with blocks in use of at most a quarter of their size.
    HeapSparsePages = 35,
    /// Free blocks in those pages.
    HeapSparseFree = 36,
    /// The largest request that the agent's heap serves; not a part.
    HeapLimit = 37,
    /// PyPy: arenas of old objects.
    PypyArenas = 50,
    /// PyPy: old objects in arenas.
    PypyObjects = 51,
    /// PyPy: large objects.
    PypyLarge = 52,
    /// PyPy: the nursery.
    PypyNursery = 53,
}

impl Part {
    /// The parts of the kernel's list of mappings, which add up to [`Part::Resident`].
    pub const MAPPED: [Self; 13] = [
        Self::FileText,
        Self::FileData,
        Self::Shared,
        Self::Stacks,
        Self::LibraryHeap,
        Self::AgentImages,
        Self::AgentMemory,
        Self::Arenas,
        Self::MachineCode,
        Self::Earlier,
        Self::Anonymous,
        Self::CudaFiles,
        Self::Pinned,
    ];
}

/// The use of the pages of one block size in one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The arena's number: its address divided by its size. 0: all arenas that are not listed for this block size.
    pub arena: u32,
    /// The size of the blocks, in bytes.
    pub block: u32,
    /// Number of blocks in use.
    pub used: u32,
    /// Number of free blocks that were in use before.
    pub free: u32,
}

/// What the resident set was made of at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// The moment.
    pub time: Nanos,
    /// Known parts, in bytes; each at most once.
    parts: Vec<(Part, u64)>,
    /// The use of the heap's pages; empty if it was not recorded at this moment.
    pub occupancy: Vec<Occupancy>,
}

impl Composition {
    /// A composition without parts.
    #[must_use]
    pub const fn at(time: Nanos) -> Self {
        Self {
            time,
            parts: Vec::new(),
            occupancy: Vec::new(),
        }
    }

    /// The bytes of a part; `None` if they are not known.
    #[must_use]
    pub fn get(&self, part: Part) -> Option<u64> {
        let mut parts = self.parts.iter();
        parts.find(|&&(of, _)| of == part).map(|&(_, bytes)| bytes)
    }

    /// Sets the bytes of a part.
    pub fn set(&mut self, part: Part, bytes: u64) {
        match self.parts.iter_mut().find(|(of, _)| *of == part) {
            Some((_, known)) => *known = bytes,
            None => self.parts.push((part, bytes)),
        }
    }

    /// Adds to the bytes of a part.
    pub fn add(&mut self, part: Part, bytes: u64) {
        let known = self.get(part).unwrap_or(0);
        self.set(part, known.saturating_add(bytes));
    }

    /// The known parts.
    pub fn parts(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        self.parts.iter().copied()
    }

    /// The content of an event [`COMPOSITION`]: the number of the process in
    /// the order of the file; the time in nanoseconds; the number of parts, and for each its number and its bytes; the
    /// number of occupancies, and for each the arena's number less the number before it, the size of the blocks in
    /// units of 16 bytes, the blocks in use, and the free ones.
    #[must_use]
    pub fn encode(&self, process: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 6 * self.parts.len() + 6 * self.occupancy.len());
        put(&mut bytes, process.into());
        put(&mut bytes, self.time.0);
        put(&mut bytes, self.parts.len() as u64);
        for &(part, value) in &self.parts {
            put(&mut bytes, part as u64);
            put(&mut bytes, value);
        }
        put(&mut bytes, self.occupancy.len() as u64);
        let mut last = 0;
        for of in &self.occupancy {
            put(&mut bytes, zigzag(i64::from(of.arena) - last));
            last = i64::from(of.arena);
            put(&mut bytes, (of.block / UNIT).into());
            put(&mut bytes, of.used.into());
            put(&mut bytes, of.free.into());
        }
        bytes
    }

    /// The inverse of [`encode`](Self::encode); `None` if the bytes are not valid. Parts that this version does not know
    /// are left out, and so is what follows.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<(u32, Self)> {
        let bytes = &mut bytes;
        let process = u32::try_from(take(bytes)?).ok()?;
        let mut composition = Self::at(Nanos(take(bytes)?));
        for _ in 0..take(bytes)? {
            let (number, value) = (take(bytes)?, take(bytes)?);
            if let Some(part) = Part::of_number(number) {
                composition.set(part, value);
            }
        }
        let mut arena = 0_i64;
        for _ in 0..take(bytes)? {
            arena = arena.checked_add(unzigzag(take(bytes)?))?;
            composition.occupancy.push(Occupancy {
                arena: u32::try_from(arena).ok()?,
                block: u32::try_from(take(bytes)?).ok()?.checked_mul(UNIT)?,
                used: u32::try_from(take(bytes)?).ok()?,
                free: u32::try_from(take(bytes)?).ok()?,
            });
        }
        Some((process, composition))
    }
}

/// Blocks of the heap are multiples of this many bytes.
const UNIT: u32 = 16;

/// Samples in a row whose neighbours lie in one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRun {
    /// The first of them.
    pub first: SampleId,
    /// Their number.
    pub count: u32,
    /// The arena's number.
    pub arena: u32,
}

/// The largest number of runs that are sure to fit into one event [`ARENAS`]: each takes at most 15 bytes.
pub const MOST_RUNS: usize = 1 << 15;

/// The content of an event [`ARENAS`]: for each run, the samples between the end of
/// the run before it (at first: sample 0) and its first, their number, and the arena's number less the arena's of the run before.
#[must_use]
pub fn encode_arenas(runs: &[ArenaRun]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 * runs.len());
    let (mut next, mut arena) = (0, 0);
    for run in runs {
        put(&mut bytes, run.first.0.saturating_sub(next).into());
        put(&mut bytes, run.count.into());
        put(&mut bytes, zigzag(i64::from(run.arena) - arena));
        (next, arena) = (run.first.0.saturating_add(run.count), i64::from(run.arena));
    }
    bytes
}

/// The inverse of [`encode_arenas`]; `None` if the bytes are not valid.
#[must_use]
pub fn parse_arenas(mut bytes: &[u8]) -> Option<Vec<ArenaRun>> {
    let mut runs = Vec::new();
    let (mut next, mut arena) = (0_u32, 0_i64);
    while !bytes.is_empty() {
        let first = next.checked_add(u32::try_from(take(&mut bytes)?).ok()?)?;
        let count = u32::try_from(take(&mut bytes)?).ok()?;
        arena = arena.checked_add(unzigzag(take(&mut bytes)?))?;
        next = first.checked_add(count)?;
        runs.push(ArenaRun {
            first: SampleId(first),
            count,
            arena: u32::try_from(arena).ok()?,
        });
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn composition() -> impl Strategy<Value = Composition> {
        let part = (proptest::sample::select(Part::ALL), any::<u64>());
        let occupancy = (any::<u32>(), 0..4096_u32, any::<u32>(), any::<u32>());
        let occupancy = occupancy.prop_map(|(arena, units, used, free)| Occupancy {
            arena,
            block: units * UNIT,
            used,
            free,
        });
        let parts = proptest::collection::vec(part, 0..40);
        let occupancies = proptest::collection::vec(occupancy, 0..20);
        (any::<u64>(), parts, occupancies).prop_map(|(time, parts, occupancy)| {
            let mut composition = Composition::at(Nanos(time));
            for (part, bytes) in parts {
                composition.set(part, bytes);
            }
            composition.occupancy = occupancy;
            composition
        })
    }

    #[test]
    fn a_part_has_what_was_set_and_added_last() {
        let mut of = Composition::at(Nanos(1));
        assert_eq!((of.get(Part::Stacks), of.parts().count()), (None, 0));
        of.set(Part::Stacks, 3);
        of.set(Part::Shared, 5);
        of.set(Part::Stacks, 7);
        of.add(Part::Stacks, 20);
        of.add(Part::Arenas, u64::MAX);
        of.add(Part::Arenas, 1);
        let parts = [
            (Part::Stacks, 27),
            (Part::Shared, 5),
            (Part::Arenas, u64::MAX),
        ];
        assert_eq!(of.parts().collect::<Vec<_>>(), parts);
        for (part, bytes) in parts {
            assert_eq!(of.get(part), Some(bytes));
        }
    }

    proptest! {
        #[test]
        fn a_composition_is_read_as_it_was_written(of in composition(), process: u32) {
            let bytes = of.encode(process);
            prop_assert_eq!(Composition::parse(&bytes), Some((process, of)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            // Each part and each occupancy takes at least two bytes of the file.
            if let Some((_, of)) = Composition::parse(&bytes) {
                prop_assert!(2 * (of.parts.len() + of.occupancy.len()) <= bytes.len());
            }
            if let Some(runs) = parse_arenas(&bytes) {
                prop_assert!(3 * runs.len() <= bytes.len());
            }
        }

        #[test]
        fn runs_are_read_as_they_were_written(
            given in proptest::collection::vec((0..1000_u32, 0..1000_u32, any::<u32>()), 0..50)
        ) {
            let mut next = 0;
            let runs: Vec<ArenaRun> = given
                .into_iter()
                .map(|(gap, count, arena)| {
                    let first = SampleId(next + gap);
                    next += gap + count;
                    ArenaRun { first, count, arena }
                })
                .collect();
            prop_assert_eq!(parse_arenas(&encode_arenas(&runs)), Some(runs));
        }
    }

    #[test]
    fn parts_of_later_versions_are_left_out() {
        let mut later = Composition::at(Nanos(5));
        later.set(Part::Resident, 7);
        let mut bytes = later.encode(0);
        // Two parts: the second has a number that this version does not know. No occupancy.
        bytes[2] = 2;
        bytes.truncate(5);
        bytes.extend([120, 9, 0]);
        assert_eq!(Composition::parse(&bytes), Some((0, later)));
    }

    #[test]
    fn numbers_are_those_of_the_file() {
        for &part in Part::ALL {
            assert_eq!(Part::of_number(part as u64), Some(part));
        }
        assert_eq!(Part::of_number(0), None);
    }
}
