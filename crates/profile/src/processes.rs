//! The processes that a profile is of.
//!
//! A session records one process. Files of several are read into one [`Profile`](crate::Profile), in the order in
//! which the processes started, and its time begins with the first: the others' times are moved by
//! the difference of the wall clock. Threads, and with them samples and collections, know their
//! process. A file that was merged from several says the same with two events of its own
//! ([`extension`]); a reader that does not know them sees the sums.

use serde::{Deserialize, Serialize};

use crate::event::{Memory, Nanos};
use crate::meta::Meta;
use crate::varint::{put, take};

/// Kinds of events that only a merged file has.
pub(crate) mod extension {
    /// A process, as JSON: threads that are defined from here on are its own.
    pub(crate) const PROCESS: u8 = 64;
    /// Memory totals of one process.
    pub(crate) const PROCESS_MEMORY: u8 = 65;
}

/// The most bytes of JSON that describe the processes of one file: bounds what a reader keeps of
/// a small file that unpacks to much.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A process: an index into [`Profile::processes`](crate::Profile::processes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// The one that started first.
    pub const FIRST: Self = Self(0);

    /// The number as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A process and its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The session's description.
    #[serde(flatten)]
    pub meta: Meta,
    /// When the session began, in the profile's time.
    #[serde(with = "nanos", rename = "start_nanos")]
    pub start: Nanos,
    /// When it ended, in the profile's time.
    #[serde(with = "nanos", rename = "end_nanos")]
    pub end: Nanos,
    /// Whether it ended in an orderly way.
    pub complete: bool,
    /// Bytes allocated in all, if the agent counted them to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// Its memory totals, if the profile is of several processes; see
    /// [`Profile::memory_of`](crate::Profile::memory_of).
    #[serde(skip)]
    pub memory: Vec<Memory>,
}

mod nanos {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::event::Nanos;

    pub(super) fn serialize<S: Serializer>(time: &Nanos, to: S) -> Result<S::Ok, S::Error> {
        time.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
        u64::deserialize(from).map(Nanos)
    }
}

impl Process {
    /// A process whose session has only begun.
    #[must_use]
    pub fn new(meta: Meta, start: Nanos) -> Self {
        Self {
            meta,
            start,
            end: start,
            complete: false,
            allocated: None,
            memory: Vec::new(),
        }
    }

    /// That of an event [`extension::PROCESS`]; `None` if it makes no sense.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// How long its session took.
    #[must_use]
    pub const fn duration(&self) -> Nanos {
        Nanos(self.end.0.saturating_sub(self.start.0))
    }
}

/// The bytes of an event [`extension::PROCESS_MEMORY`]: numbers of variable length. The number of
/// the process in the order of the file, the time in nanoseconds, which totals are there (a bit
/// each, as in memory totals without a process), and those.
pub(crate) fn encode_memory(process: ProcessId, memory: &Memory) -> Vec<u8> {
    let totals = totals(memory);
    let mut bytes = Vec::new();
    put(&mut bytes, process.0.into());
    put(&mut bytes, memory.time.0);
    let present = totals.iter().enumerate();
    let present = present.map(|(at, total)| u64::from(total.is_some()) << at);
    put(&mut bytes, present.sum());
    for total in totals.into_iter().flatten() {
        put(&mut bytes, total);
    }
    bytes
}

/// The inverse of [`encode_memory`]; `None` if the bytes make no sense.
pub(crate) fn parse_memory(mut bytes: &[u8]) -> Option<(ProcessId, Memory)> {
    let process = u32::try_from(take(&mut bytes)?).ok()?;
    let time = Nanos(take(&mut bytes)?);
    let present = take(&mut bytes)?;
    let mut totals = [None; TOTALS];
    for (at, total) in totals.iter_mut().enumerate() {
        if present >> at & 1 == 1 {
            *total = Some(take(&mut bytes)?);
        }
    }
    Some((ProcessId(process), of_totals(time, totals)))
}

/// How many totals [`Memory`] has.
pub(crate) const TOTALS: usize = 4;

pub(crate) fn totals(memory: &Memory) -> [Option<u64>; TOTALS] {
    [
        memory.heap_used,
        memory.heap_reserved,
        memory.rss,
        memory.allocated,
    ]
}

pub(crate) fn of_totals(time: Nanos, totals: [Option<u64>; TOTALS]) -> Memory {
    let [heap_used, heap_reserved, rss, allocated] = totals;
    Memory {
        time,
        heap_used,
        heap_reserved,
        rss,
        allocated,
    }
}

impl Process {
    /// The process in a few words: its number, and whose child it is.
    #[must_use]
    pub fn label(&self) -> String {
        process_label(self.meta.pid, self.meta.parent_pid)
    }
}

/// A process in a few words.
#[must_use]
pub fn process_label(pid: u32, parent: Option<u32>) -> String {
    match parent {
        Some(parent) => format!("process {pid}, child of {parent}"),
        None => format!("process {pid}"),
    }
}
