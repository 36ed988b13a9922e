//! The processes that a profile is of.
//!
//! A session records one process. Files of several are read into one [`Profile`], in the order in
//! which the processes started, and its time begins with the first: the others' times are moved by
//! the difference of the wall clock. Threads, and with them samples and collections, know their
//! process. A file that was merged from several says the same with two events of its own
//! ([`extension`]); a reader that does not know them sees the sums.
//!
//! *Memory totals* of a process are its own view, and the views overlap: a forked child shares its
//! parent's pages until one of them writes. So sums of what is reserved, and of resident sets, are
//! upper bounds. Of blocks in use, what a child had before it allocated anything is left out: its
//! parent has it too.

use serde::{Deserialize, Serialize};

use crate::event::{Memory, Nanos, NodeId, ThreadId};
use crate::meta::Meta;
use crate::model::{Frame, Function, Profile, StackNode, ThreadNames};
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

/// A process: an index into [`Profile::processes`].
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
    /// Its memory totals, if the profile is of several processes; see [`Profile::memory_of`].
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
const TOTALS: usize = 4;

fn totals(memory: &Memory) -> [Option<u64>; TOTALS] {
    [
        memory.heap_used,
        memory.heap_reserved,
        memory.rss,
        memory.allocated,
    ]
}

fn of_totals(time: Nanos, totals: [Option<u64>; TOTALS]) -> Memory {
    let [heap_used, heap_reserved, rss, allocated] = totals;
    Memory {
        time,
        heap_used,
        heap_reserved,
        rss,
        allocated,
    }
}

impl Profile {
    /// The process that a thread belongs to.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> ProcessId {
        let known = self.thread_processes.get(thread.index());
        known.copied().unwrap_or(ProcessId::FIRST)
    }

    /// Memory totals of one process over time.
    #[must_use]
    pub fn memory_of(&self, process: ProcessId) -> &[Memory] {
        match self.processes.get(process.index()) {
            Some(process) if self.processes.len() > 1 => &process.memory,
            _ => &self.memory,
        }
    }

    /// The numbers of all processes.
    pub fn process_ids(&self) -> impl ExactSizeIterator<Item = ProcessId> + use<> {
        // Each process has a file, or bytes of one: there are fewer than 2^32.
        (0..self.processes.len() as u32).map(ProcessId)
    }

    /// Adds a thread of a process.
    pub(crate) fn push_thread(&mut self, process: ProcessId, names: ThreadNames) -> ThreadId {
        self.thread_processes
            .resize(self.threads.len(), ProcessId::FIRST);
        self.thread_processes.push(process);
        self.threads.push(names);
        ThreadId(self.threads.len() as u32 - 1)
    }

    /// Works out what belongs to all processes together: the description (the first one's, and
    /// everyone's remarks), the totals, and when the last one ended.
    pub(crate) fn sum_processes(&mut self) {
        let processes = &mut self.processes;
        self.end = processes.iter().map(|of| of.end).max().unwrap_or_default();
        self.complete = processes.iter().all(|process| process.complete);
        let mut allocated = processes.iter().map(|process| process.allocated);
        self.allocated = allocated.try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)));
        if let Some(first) = processes.first() {
            self.meta = first.meta.clone();
        }
        for process in processes.iter().skip(1) {
            for note in &process.meta.notes {
                if !self.meta.notes.contains(note) {
                    self.meta.notes.push(note.clone());
                }
            }
        }
        if processes.len() > 1 {
            let note = format!(
                "memory over time is the sum of {} processes: what they share counts in each, so it is \
                 an upper bound",
                processes.len()
            );
            self.meta.notes.push(note);
        }
        self.meta.sources.clone_from(&self.sources);
        self.memory = match &mut processes[..] {
            [one] => std::mem::take(&mut one.memory),
            several => sum_memory(several),
        };
    }

    /// Puts a frame for its process under every stack, so that whatever shows stacks tells the
    /// processes apart. Does nothing if there is only one.
    pub fn root_by_process(&mut self) {
        if self.processes.len() < 2 {
            return;
        }
        let mut roots = Vec::new();
        for process in &self.processes {
            let function = self.functions.len() as u32;
            self.functions.push(Function {
                name: process.label(),
                file: String::new(),
                first_line: 0,
            });
            roots.push(self.frames.len() as u32);
            self.frames.push(Frame {
                function,
                line: 0,
                kind: crate::event::FrameKind::Note,
            });
        }
        let mut grafts = Grafts {
            roots,
            numbers: vec![Vec::new(); self.processes.len()],
            old: std::mem::take(&mut self.stacks),
            new: vec![StackNode {
                parent: NodeId::ROOT,
                frame: 0,
            }],
        };
        for id in self.samples.ids() {
            let process = self.process_of(self.samples.thread(id));
            let stack = grafts.place(process, self.samples.stack(id));
            self.samples.set_stack(id, stack);
        }
        for at in 0..self.cpu.len() {
            let process = self.process_of(self.cpu[at].thread);
            self.cpu[at].stack = grafts.place(process, self.cpu[at].stack);
        }
        self.stacks = grafts.new;
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

/// Stack trees of processes, from one that they share.
struct Grafts {
    /// The frame of each process.
    roots: Vec<u32>,
    /// For each process, the new number of each old node; 0 is none yet.
    numbers: Vec<Vec<u32>>,
    old: Vec<StackNode>,
    new: Vec<StackNode>,
}

impl Grafts {
    fn place(&mut self, process: ProcessId, stack: NodeId) -> NodeId {
        let numbers = &mut self.numbers[process.index()];
        if numbers.is_empty() {
            numbers.resize(self.old.len(), 0);
            numbers[NodeId::ROOT.index()] = self.new.len() as u32;
            self.new.push(StackNode {
                parent: NodeId::ROOT,
                frame: self.roots[process.index()],
            });
        }
        let mut missing = Vec::new();
        let mut at = stack;
        while numbers[at.index()] == 0 {
            missing.push(at);
            at = self.old[at.index()].parent;
        }
        for node in missing.into_iter().rev() {
            let old = self.old[node.index()];
            numbers[node.index()] = self.new.len() as u32;
            self.new.push(StackNode {
                parent: NodeId(numbers[old.parent.index()]),
                ..old
            });
        }
        NodeId(numbers[stack.index()])
    }
}

/// The totals of all processes together at each time at which one of them has any. A process has
/// nothing before its session and after it, but what it allocated in all stays.
fn sum_memory(processes: &[Process]) -> Vec<Memory> {
    let mut changes: Vec<(Nanos, usize, Option<Memory>)> = Vec::new();
    for (number, process) in processes.iter().enumerate() {
        let parent = process.meta.parent_pid;
        let is_child = processes.iter().any(|of| Some(of.meta.pid) == parent);
        let inherited = if is_child { process.inherited() } else { 0 };
        let own = process.memory.iter().map(|memory| Memory {
            heap_used: memory.heap_used.map(|used| used.saturating_sub(inherited)),
            ..*memory
        });
        changes.extend(own.map(|memory| (memory.time, number, Some(memory))));
        changes.push((process.end, number, None));
    }
    changes.sort_by_key(|&(time, number, memory)| (time, memory.is_none(), number));
    let mut last = vec![[None; TOTALS]; processes.len()];
    let mut sums = [None; TOTALS];
    let mut all = Vec::with_capacity(changes.len());
    for (time, number, memory) in changes {
        let before = last[number];
        let now = match memory {
            Some(memory) => {
                let mut now = totals(&memory);
                for (now, before) in now.iter_mut().zip(before) {
                    *now = now.or(before);
                }
                now
            }
            None => {
                let mut now = before.map(|total| total.map(|_| 0));
                now[ALLOCATED] = processes[number].allocated.or(before[ALLOCATED]);
                now
            }
        };
        for (sum, (before, now)) in sums.iter_mut().zip(before.into_iter().zip(now)) {
            if let Some(now) = now {
                let others = sum.unwrap_or(0_u64).saturating_sub(before.unwrap_or(0));
                *sum = Some(others.saturating_add(now));
            }
        }
        last[number] = now;
        all.push(of_totals(time, sums));
    }
    all
}

/// The index of [`Memory::allocated`] in [`totals`].
const ALLOCATED: usize = 3;

impl Process {
    /// Bytes in use that a forked child had before it allocated anything: its first total less
    /// what it had allocated by then.
    fn inherited(&self) -> u64 {
        let first = self.memory.first();
        let inherited = |first: &Memory| {
            let used = first.heap_used?;
            Some(used.saturating_sub(first.allocated?))
        };
        first.and_then(inherited).unwrap_or(0)
    }
}
