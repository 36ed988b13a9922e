//! PyPy's collector, `incminimark.py`: constants that do not change between versions, and the results of the
//! search in the library.

/// Objects above this size do not go through the nursery (`large_object` in `incminimark.py`, in bytes).
pub const LARGE_OBJECT: usize = (16384 + 512) * 8;

/// The size of an arena of old objects in bytes (`arena_size` in `incminimark.py`).
pub const ARENA: u64 = 65_536 * 8;

/// The size of a part of an `AddressStack` in bytes (`DEFAULT_CHUNK_SIZE` in `rpython/memory/support.py`, and a pointer).
pub const ADDRESS_STACK_PART: u64 = (1019 + 1) * 8;

/// The collector's struct is smaller than this.
pub const COLLECTOR_STRUCT: usize = 0x800;

/// Major collections have this many states, numbered from 0.
pub const MAJOR_STATES: usize = 4;

/// The result of the search: addresses in this process, and offsets in the collector's struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The collector's struct.
    pub gc: usize,
    /// `collect_and_reserve(gc, size)`, the slow path of every allocation in the nursery.
    pub reserve: usize,
    /// `_minor_collection(gc)`.
    pub minor: usize,
    /// Offset of `nursery_free`.
    pub nursery_free: usize,
    /// Offset of `nursery_top`.
    pub nursery_top: usize,
    /// The steps of major collections, if the search has found them.
    pub major: Option<Major>,
    /// Number of slow paths that use this collector and this function.
    pub sites: u32,
    /// Number of slow paths of the second-best candidate.
    pub runner_up: u32,
}

/// The function that executes a step of a major collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Major {
    /// `major_collection_step(gc, reserving_size)`.
    pub step: usize,
    /// Offset of `gc_state`: the phase that the next step is in.
    pub state: usize,
}
