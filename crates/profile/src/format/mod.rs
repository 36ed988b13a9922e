//! The bytes of a profile; docs/format.md is the specification.
//!
//! A *block* is what is written, checksummed and, if need be, lost at once. Inside it, events are
//! split into *columns*: bytes of one nature stand together, because that compresses a sixth to a
//! quarter better than the same bytes interleaved (docs/format.md, "Choices"). Every number in a column is
//! relative to something nearby in the same block.

use crate::event::{LabelSetId, SourceId, ThreadId};

pub(crate) mod block;
mod changed_sources;
pub(crate) mod decode;
pub(crate) mod encode;

/// The first bytes of a profile. The first is not ASCII and the last four catch what damages
/// line ends or stops at a ^Z, as in PNG.
pub const MAGIC: [u8; 8] = *b"\x89nthb\r\n\x1a";

/// The version of the format that this crate writes, and the newest that it reads. It reads all
/// versions from 1 on.
pub(crate) const VERSION: u32 = 2;

/// The unit of all times but durations. Three digits of
/// nanoseconds would cost a byte a sample and say nothing.
pub(crate) const TICK_NANOS: u32 = 1000;

/// The most bytes of JSON that describe a session.
pub(crate) const MAX_META: usize = 1 << 20;

/// The longest text that a definition may carry; the writer cuts a longer one.
pub(crate) const MAX_TEXT: usize = 16 << 10;

/// The longest location table; the writer drops a longer one, and its lines are not known.
pub(crate) const MAX_TABLE: usize = 2 << 20;

/// The longest extension; the writer drops a longer one.
pub(crate) const MAX_EXTENSION: usize = 1 << 20;

/// What the first byte of an event says. An allocation's survival is part of its kind.
///
/// Kinds below [`EXTENSIONS`](kind::EXTENSIONS) are those of the format's version. From there on,
/// all that an event has is in [`Column::Extensions`], with its length, so that a reader can skip
/// kinds that it does not know.
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
    /// The last kind of version 1.
    pub(crate) const LAST_OF_VERSION_1: u8 = END;
}

/// The columns of a block, in the order in which they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Column {
    /// A byte of [`kind`] for every event.
    Kinds,
    /// Allocations: number of the site, or 0 for a new one.
    Sites,
    /// New sites: context (version 1: thread), stack, type.
    SiteDefinitions,
    /// Allocations: time since the previous allocation.
    Times,
    /// Allocations: size, relative to the last one of the same site.
    Sizes,
    /// Allocations: block, relative to the size rounded up.
    Blocks,
    /// Allocations: points covered, less one.
    Points,
    /// Frees: how many samples ago.
    FreedSamples,
    /// Frees: time since the previous free.
    FreedTimes,
    /// Stack nodes.
    Nodes,
    /// Time samples.
    Cpu,
    /// Collections: kind, detail, thread, which totals are there.
    Collections,
    /// Collections: time since the start of the previous one, duration.
    CollectionTimes,
    /// Collections: their totals, relative to those of the previous one.
    CollectionTotals,
    /// Memory totals: which are there, time and totals relative to the previous ones.
    Memory,
    /// Numbers of all other events, and the lengths of texts.
    Numbers,
    /// Texts and location tables, end to end.
    Texts,
    /// New contexts: thread, source, label set.
    Contexts,
    /// Events from [`kind::EXTENSIONS`] on: length, bytes.
    Extensions,
}

/// How many columns there are.
pub(crate) const COLUMNS: usize = Column::Extensions as usize + 1;

/// How many columns of these there were in version 1.
pub(crate) const COLUMNS_OF_VERSION_1: usize = Column::Texts as usize + 1;

/// How many definitions and samples came before a block, those of lost blocks included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Firsts {
    /// Number of the block's first [`CodeId`](crate::event::CodeId).
    pub code: u32,
    /// … [`NodeId`](crate::event::NodeId).
    pub node: u32,
    /// … [`TypeId`](crate::event::TypeId).
    pub type_id: u32,
    /// … [`ThreadId`](crate::event::ThreadId).
    pub thread: u32,
    /// … [`SampleId`](crate::event::SampleId).
    pub sample: u32,
    /// … [`LabelSetId`](crate::event::LabelSetId).
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

/// What most samples share with the one before: thread, source and label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    pub(crate) thread: ThreadId,
    pub(crate) source: SourceId,
    pub(crate) labels: LabelSetId,
}

/// A site of this block: the number of its context in the block, stack and type, which most
/// allocations share with an earlier one.
pub(crate) type Site = (u32, u32, u32);

/// The block that a size makes likely: the size rounded up to the alignment, at least one unit.
pub(crate) const fn likely_block(size: u64) -> u64 {
    if size <= 16 {
        16
    } else {
        size.saturating_add(15) & !15
    }
}
