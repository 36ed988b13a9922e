//! The bytes of a profile; docs/format.md is the specification.
//!
//! A *block* is the unit of writing, checksums and loss. Inside it, events are split into *columns*: bytes
//! with the same meaning are stored together, because they compress a sixth to a quarter better than
//! interleaved bytes (docs/format.md, "Choices"). Every number in a column is relative to a number nearby
//! in the same block.

use crate::event::{LabelSetId, SourceId, ThreadId};

pub(crate) mod block;
mod changed_sources;
pub(crate) mod decode;
pub(crate) mod encode;

/// The first bytes of a profile. The first byte is not ASCII, and the last four detect programs
/// that change line ends or stop at a ^Z, as in PNG.
pub const MAGIC: [u8; 8] = *b"\x89nthb\r\n\x1a";

/// The version of the format that this crate writes and reads.
pub(crate) const VERSION: u32 = 1;

/// The number that development versions wrote before the first release. No release uses it.
pub(crate) const VERSION_IN_DEVELOPMENT: u32 = 2;

/// The unit of all times except durations. Three digits of nanoseconds would cost a byte for each
/// sample and give no information.
pub(crate) const TICK_NANOS: u32 = 1000;

/// The largest size of a session's description in JSON, in bytes.
pub(crate) const MAX_META: usize = 1 << 20;

/// The longest text of a definition, in bytes; the writer cuts a longer text.
pub(crate) const MAX_TEXT: usize = 16 << 10;

/// The longest location table, in bytes; the writer drops a longer table, and its lines are not
/// known.
pub(crate) const MAX_TABLE: usize = 2 << 20;

/// The longest extension, in bytes; the writer drops a longer one.
pub(crate) const MAX_EXTENSION: usize = 1 << 20;

/// The first byte of an event. An allocation's survival is part of its kind.
///
/// The format's version defines the kinds below [`EXTENSIONS`](kind::EXTENSIONS). From there on,
/// the whole event is in [`Column::Extensions`], with its length, so that a reader can skip unknown
/// kinds.
pub(crate) mod kind {
    pub(crate) const CODE: u8 = 0;
    pub(crate) const NODE: u8 = 1;
    pub(crate) const TYPE: u8 = 2;
    pub(crate) const THREAD: u8 = 3;
    pub(crate) const THREAD_NAME: u8 = 4;
    pub(crate) const ALLOCATION: u8 = 5;
    pub(crate) const ALLOCATION_DIED_YOUNG: u8 = 6;
    pub(crate) const ALLOCATION_SURVIVED: u8 = 7;
    pub(crate) const FREED: u8 = 8;
    pub(crate) const CPU: u8 = 9;
    pub(crate) const COLLECTION: u8 = 10;
    pub(crate) const MEMORY: u8 = 11;
    pub(crate) const LOST: u8 = 12;
    pub(crate) const END: u8 = 13;
    pub(crate) const SOURCE: u8 = 14;
    pub(crate) const PERIOD: u8 = 15;
    pub(crate) const LABEL: u8 = 16;
    pub(crate) const EXTENSIONS: u8 = 64;
}

/// The columns of a block, in the order of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Column {
    /// A byte of [`kind`] for every event.
    Kinds,
    /// Allocations: number of the site, or 0 for a new one.
    Sites,
    /// New sites: context, stack, type.
    SiteDefinitions,
    /// Allocations: time since the previous allocation.
    Times,
    /// Allocations: size, relative to the last size of the same site.
    Sizes,
    /// Allocations: block size, relative to the rounded size.
    Blocks,
    /// Allocations: number of covered sample points, minus one.
    Points,
    /// Frees: the distance to the sample, counted in samples.
    FreedSamples,
    /// Frees: time since the previous free.
    FreedTimes,
    /// Stack nodes.
    Nodes,
    /// Time samples.
    Cpu,
    /// Collections: kind, detail, thread, and which totals are present.
    Collections,
    /// Collections: time since the start of the previous one, duration.
    CollectionTimes,
    /// Collections: their totals, relative to the totals of the previous one.
    CollectionTotals,
    /// Memory totals: which totals are present, time and totals relative to the previous ones.
    Memory,
    /// Numbers of all other events, and the lengths of texts.
    Numbers,
    /// Texts and location tables, without separators.
    Texts,
    /// New contexts: thread, source, label set.
    Contexts,
    /// Events from [`kind::EXTENSIONS`] on: length, bytes.
    Extensions,
}

/// The number of columns.
pub(crate) const COLUMNS: usize = Column::Extensions as usize + 1;

/// Number of definitions and samples before a block, including those in lost blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Firsts {
    /// Number of the block's first [`CodeId`](crate::event::CodeId).
    pub code: u32,
    /// … [`NodeId`](crate::event::NodeId).
    pub node: u32,
    /// … [`TypeId`](crate::event::TypeId).
    pub type_id: u32,
    /// … [`ThreadId`].
    pub thread: u32,
    /// … [`SampleId`](crate::event::SampleId).
    pub sample: u32,
    /// … [`LabelSetId`].
    pub label_set: u32,
}

impl Firsts {
    /// The numbers at the start of a session: node 0, type 0 and label set 0 are never defined.
    pub const START: Self = Self {
        code: 0,
        node: 1,
        type_id: 1,
        thread: 0,
        sample: 0,
        label_set: 1,
    };
}

/// Values that most samples share with the previous sample: thread, source and label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    pub(crate) thread: ThreadId,
    pub(crate) source: SourceId,
    pub(crate) labels: LabelSetId,
}

/// A site of this block: the number of its context in the block, stack and type. Most allocations
/// share them with an earlier allocation.
pub(crate) type Site = (u32, u32, u32);

/// The most probable block size for a requested size: the size rounded up to the alignment, at
/// least one unit.
pub(crate) const fn likely_block(size: u64) -> u64 {
    if size <= 16 {
        16
    } else {
        size.saturating_add(15) & !15
    }
}
