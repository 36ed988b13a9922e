//! The processes of a profile.
//!
//! A session records one process. The files of several sessions are read into one [`Profile`](crate::Profile), in
//! the order in which the processes started. Its time begins with the first process: the times of the other
//! processes are shifted by the difference of the wall clock. Each thread, sample and collection belongs to a
//! process. A merged file contains the same data in two events of its own ([`extension`]); a reader that does not
//! know them sees only the sums.

use serde::{Deserialize, Serialize};

use crate::activity::Activity;
use crate::compilation::Compilation;
use crate::composition::Composition;
use crate::event::{Memory, Nanos};
use crate::holders::Snapshot;
use crate::meta::Meta;
use crate::missing::Missing;
use crate::pressure::Pressure;
use crate::segment::Sums;
use crate::varint::{put, take};

/// Kinds of events about processes. The first two and `LOST` are in merged files only.
pub mod extension {
    use crate::varint::put;

    /// A process, as JSON: the threads that are defined after it belong to it.
    pub(crate) const PROCESS: u8 = 64;
    /// Memory totals of one process.
    pub(crate) const PROCESS_MEMORY: u8 = 65;
    /// Why the process or its session ended early, as text.
    pub(crate) const ENDED_BY: u8 = 66;
    /// A note on the run, a text like the notes of the header: something that became known while it went on.
    pub const NOTE: u8 = 67;
    /// How many samples were lost for each [`LOST_UNIT`](crate::model::LOST_UNIT) of the samples from here on.
    pub(crate) const LOST: u8 = 68;
    /// What the heap has counted, at the end of a session: [`counted`].
    pub const COUNTED: u8 = 69;
    /// The first event of a provisional block, without content: the block is overwritten when the file grows.
    pub(crate) const PROVISIONAL: u8 = 73;

    /// The content of an event [`COUNTED`]: how many bytes the blocks have that the heap handed out, as a number of variable length.
    #[must_use]
    pub fn counted(bytes: u64) -> Vec<u8> {
        let mut event = Vec::new();
        put(&mut event, bytes);
        event
    }
}

/// The largest total size of the JSON for the processes of one file, in bytes. It limits the memory
/// of a reader for a small file that decompresses to a large one.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A process: an index into [`Profile::processes`](crate::Profile::processes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// The process that started first.
    pub const FIRST: Self = Self(0);

    /// The number, as an index into a table.
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
    /// The start of the session, in the profile's time.
    #[serde(with = "nanos", rename = "start_nanos")]
    pub start: Nanos,
    /// The end of the session, in the profile's time.
    #[serde(with = "nanos", rename = "end_nanos")]
    pub end: Nanos,
    /// Whether the session ended normally.
    pub complete: bool,
    /// All allocated bytes, if the agent counted them until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// See [`Profile::counted`](crate::Profile::counted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// What ended the process or its session early, if the agent could tell: a signal, or a full disk. One line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Events that are in no profile, although they belong to this process or its children.
    #[serde(default, skip_serializing_if = "Missing::is_empty")]
    pub missing: Missing,
    /// The number of events that were lost, except for time samples.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// The process's memory totals, if the profile has several processes; see
    /// [`Profile::memory_of`](crate::Profile::memory_of).
    #[serde(skip)]
    pub memory: Vec<Memory>,
    /// What its resident set was made of, at some moments.
    #[serde(skip)]
    pub compositions: Vec<Composition>,
    /// How busy it was, at some moments.
    #[serde(skip)]
    pub activity: Vec<Activity>,
    /// How near it was to a limit of its memory, at the last moments at which it was near.
    #[serde(skip)]
    pub pressure: Vec<Pressure>,
    /// What its JIT compiler did, in the order of the ends.
    #[serde(skip)]
    pub compilations: Vec<Compilation>,
    /// Who held what was alive, at some moments.
    #[serde(skip)]
    pub snapshots: Vec<Snapshot>,
    /// What was allocated in parts of the session whose samples were dropped, in the session's time.
    #[serde(skip)]
    pub sums: Vec<Sums>,
    /// Since when there are samples, if earlier ones were dropped. What was alive then has samples, too.
    #[serde(skip)]
    pub kept_since: Option<Nanos>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
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
    /// A process whose session has just begun.
    #[must_use]
    pub fn new(meta: Meta, start: Nanos) -> Self {
        Self {
            meta,
            start,
            end: start,
            complete: false,
            allocated: None,
            counted: None,
            ended_by: None,
            missing: Missing::default(),
            lost: 0,
            memory: Vec::new(),
            compositions: Vec::new(),
            activity: Vec::new(),
            pressure: Vec::new(),
            compilations: Vec::new(),
            snapshots: Vec::new(),
            sums: Vec::new(),
            kept_since: None,
        }
    }

    /// Parses an event [`extension::PROCESS`]; `None` if it is not valid.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The duration of the session.
    #[must_use]
    pub const fn duration(&self) -> Nanos {
        Nanos(self.end.0.saturating_sub(self.start.0))
    }
}

/// The bytes of an event [`extension::PROCESS_MEMORY`], as numbers of variable length: the number
/// of the process in the order of the file, the time in nanoseconds, the totals that are present (a
/// bit for each, as in memory totals without a process), and their values.
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

/// The inverse of [`encode_memory`]; `None` if the bytes are not valid.
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

/// The number of totals in [`Memory`].
pub(crate) const TOTALS: usize = 5;

pub(crate) fn totals(memory: &Memory) -> [Option<u64>; TOTALS] {
    [
        memory.heap_used,
        memory.heap_reserved,
        memory.rss,
        memory.allocated,
        memory.peak_rss,
    ]
}

pub(crate) fn of_totals(time: Nanos, totals: [Option<u64>; TOTALS]) -> Memory {
    let [heap_used, heap_reserved, rss, allocated, peak_rss] = totals;
    Memory {
        time,
        heap_used,
        heap_reserved,
        rss,
        allocated,
        peak_rss,
    }
}

impl Process {
    /// A short text for the process: its number, and its parent's number.
    #[must_use]
    pub fn label(&self) -> String {
        process_label(self.meta.pid, self.meta.parent_pid)
    }
}

/// A short text for a process.
#[must_use]
pub fn process_label(pid: u32, parent: Option<u32>) -> String {
    match parent {
        Some(parent) => format!("process {pid}, child of {parent}"),
        None => format!("process {pid}"),
    }
}
