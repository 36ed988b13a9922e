//! Data that several processes share, and a way to distinguish them.
//!
//! The *memory totals* of a process are its own view, and the views overlap: a forked child shares
//! its parent's pages until one of them writes. So sums of reserved memory, and of resident sets,
//! are upper bounds. Blocks that a child had before its first allocation are not counted as in use:
//! its parent has them too.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{FrameKind, LabelSetId, Memory, Nanos, NodeId, ThreadId};
use crate::model::{Frame, Function, Profile, StackNode, ThreadNames};
use crate::processes::{Process, ProcessId, TOTALS, of_totals, totals};

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
        // Each process has a file, or bytes of a file: there are fewer than 2^32.
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

    /// Computes the values for all processes together: the description (of the first process, with
    /// all remarks), the totals, and the end of the last process.
    pub(crate) fn sum_processes(&mut self) {
        let processes = &mut self.processes;
        self.end = processes.iter().map(|of| of.end).max().unwrap_or_default();
        self.complete = processes.iter().all(|process| process.complete);
        let sum = |of: fn(&Process) -> Option<u64>| {
            let mut of_all = processes.iter().map(of);
            of_all.try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))
        };
        self.allocated = sum(|process| process.allocated);
        self.counted = sum(|process| process.counted);
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

    /// Adds a frame for its process at the outer end of every stack, so that all reports of stacks
    /// show the process. Does nothing if there is only one process.
    pub fn root_by_process(&mut self) {
        if self.processes.len() < 2 {
            return;
        }
        let names = self.processes.iter().map(|process| process.label());
        let names = names.collect();
        let processes = std::mem::take(&mut self.thread_processes);
        self.root_by(names, |thread, _| {
            let process = processes.get(thread.index()).copied();
            process.unwrap_or(ProcessId::FIRST).index()
        });
        self.thread_processes = processes;
    }

    /// Adds a frame at the outer end of every stack: the one whose name has the number that `root` returns for the thread and the
    /// labels of a sample.
    pub(crate) fn root_by(
        &mut self,
        names: Vec<String>,
        root: impl Fn(ThreadId, LabelSetId) -> usize,
    ) {
        let mut roots = Vec::with_capacity(names.len());
        for name in names {
            let function = self.functions.len() as u32;
            self.functions.push(Function {
                name,
                file: String::new(),
                first_line: 0,
            });
            roots.push(self.frames.len() as u32);
            self.frames.push(Frame {
                function,
                line: 0,
                kind: FrameKind::Note,
            });
        }
        let mut grafts = Grafts::new(roots, std::mem::take(&mut self.stacks));
        self.samples
            .move_stacks(|site| grafts.place(root(site.thread, site.labels), site.stack));
        for sample in &mut self.cpu {
            sample.stack = grafts.place(root(sample.thread, sample.labels), sample.stack);
        }
        self.stacks = grafts.into_stacks();
    }
}

/// Builds a stack tree for each of several frames, such as one for each process, from a shared tree. A part of the shared tree is
/// copied when it is needed.
struct Grafts {
    /// The frames at the outer ends.
    roots: Vec<u32>,
    /// For each of them, the new number of each old node that has one.
    numbers: Vec<HashMap<NodeId, NodeId, RandomState>>,
    old: Vec<StackNode>,
    new: Vec<StackNode>,
}

impl Grafts {
    fn new(roots: Vec<u32>, old: Vec<StackNode>) -> Self {
        Self {
            numbers: vec![HashMap::default(); roots.len()],
            roots,
            old,
            new: vec![StackNode {
                parent: NodeId::ROOT,
                frame: 0,
            }],
        }
    }

    pub(crate) fn into_stacks(self) -> Vec<StackNode> {
        self.new
    }

    /// The place of a stack below a root.
    pub(crate) fn place(&mut self, root: usize, stack: NodeId) -> NodeId {
        let numbers = &mut self.numbers[root];
        if numbers.is_empty() {
            numbers.insert(NodeId::ROOT, NodeId(self.new.len() as u32));
            self.new.push(StackNode {
                parent: NodeId::ROOT,
                frame: self.roots[root],
            });
        }
        let mut missing = Vec::new();
        let mut at = stack;
        let mut parent = loop {
            if let Some(&known) = numbers.get(&at) {
                break known;
            }
            missing.push(at);
            at = self.old[at.index()].parent;
        };
        for node in missing.into_iter().rev() {
            let number = NodeId(self.new.len() as u32);
            self.new.push(StackNode {
                parent,
                ..self.old[node.index()]
            });
            numbers.insert(node, number);
            parent = number;
        }
        parent
    }
}

/// The totals of all processes together, at each time at which one of them has totals. A process
/// contributes nothing before and after its session, but its number of allocated bytes stays.
fn sum_memory(processes: &[Process]) -> Vec<Memory> {
    // A process, and the number of one of its totals; that after the last one is its end.
    let mut changes: Vec<(Nanos, u32, u32)> = Vec::new();
    let inherited = |process: &Process| {
        let parent = process.meta.parent_pid;
        let is_child = processes.iter().any(|of| Some(of.meta.pid) == parent);
        if is_child { process.inherited() } else { 0 }
    };
    let inherited: Vec<u64> = processes.iter().map(inherited).collect();
    for (number, process) in processes.iter().enumerate() {
        let times = process.memory.iter().map(|memory| memory.time);
        let times = times.chain([process.end]).zip(0..);
        changes.extend(times.map(|(time, of)| (time, number as u32, of)));
    }
    let total = |number: usize, of: u32| -> Option<Memory> {
        let memory = processes[number].memory.get(of as usize)?;
        Some(Memory {
            heap_used: memory
                .heap_used
                .map(|used| used.saturating_sub(inherited[number])),
            ..*memory
        })
    };
    changes.sort_unstable_by_key(|&(time, number, of)| {
        let is_end = of as usize == processes[number as usize].memory.len();
        (time, is_end, number, of)
    });
    let mut last = vec![[None; TOTALS]; processes.len()];
    let mut sums = [None; TOTALS];
    let mut all = Vec::with_capacity(changes.len());
    for (time, number, of) in changes {
        let number = number as usize;
        let before = last[number];
        let now = match total(number, of) {
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
        // The processes reach their peaks at different times, so the sum of them means nothing.
        all.push(Memory {
            peak_rss: None,
            ..of_totals(time, sums)
        });
    }
    all
}

/// The index of [`Memory::allocated`] in [`totals`].
const ALLOCATED: usize = 3;

impl Process {
    /// Bytes in use that a forked child had before its first allocation: its first total minus the
    /// bytes that it had allocated until then.
    fn inherited(&self) -> u64 {
        let inherited = |memory: &Memory| {
            let used = memory.heap_used?;
            Some(used.saturating_sub(memory.allocated?))
        };
        self.memory.iter().find_map(inherited).unwrap_or(0)
    }
}
