//! PyPy's collector, `incminimark.py`: what is known of it beforehand, and what the search in the library finds.

/// Objects above this size do not go through the nursery (`large_object` in `incminimark.py`, in bytes).
pub const LARGE_OBJECT: usize = (16384 + 512) * 8;

/// The collector's struct is smaller than this.
pub const COLLECTOR_STRUCT: usize = 0x800;

/// The states of a major collection are numbered from 0 to one less than this.
pub const MAJOR_STATES: usize = 4;

/// What the search found: addresses in this process, offsets in the collector's struct.
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
    /// The steps of major collections, if they are where they should be.
    pub major: Option<Major>,
    /// Slow paths that agree.
    pub sites: u32,
    /// Slow paths of the next best candidate.
    pub runner_up: u32,
}

/// Where major collections take their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Major {
    /// `major_collection_step(gc, reserving_size)`.
    pub step: usize,
    /// Offset of `gc_state`: the phase that the next step is in.
    pub state: usize,
}
