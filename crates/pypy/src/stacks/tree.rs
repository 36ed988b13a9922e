//! From raw stacks to nodes of the profile's stack tree.

use std::cell::Cell;

use nthbyte_profile::event::{
    Code, CodeId, CpuSample, FrameKind, Lines, LostKind, Node, NodeId, Thread, ThreadId,
};
use rustc_hash::FxHashMap;

use super::handler::Work;
use super::links::{Step, StepKind};
use super::names::CodeName;
use super::nodes::{Nodes, Slot};
use super::record::RawFrame;
use super::vmprof::Vmprof;
use crate::gil_trap::GilTrap;
use nthbyte_session::Recorder;

/// The file whose frames, and those outside of them, are nthbyte's own and not the program's.
const LAUNCHER: &str = "/nthbyte/_run.py";

thread_local! {
    static OS_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The operating system's number of the calling thread; one system call a thread.
fn os_thread() -> u64 {
    match OS_THREAD.get() {
        0 => ask_os_thread(),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn ask_os_thread() -> u64 {
    // SAFETY: gettid has no precondition.
    let number = unsafe { libc::syscall(libc::SYS_gettid) }.cast_unsigned();
    OS_THREAD.set(number);
    number
}

/// Stacks of one session.
#[derive(Debug)]
pub struct Stacks {
    vmprof: Vmprof,
    /// Code objects that the profile has; `None` for those of nthbyte's launcher, which are left out
    /// with all that called them.
    codes: FxHashMap<u64, Option<CodeId>>,
    /// By what it does.
    collector: [Option<CodeId>; 2],
    threads: FxHashMap<u64, ThreadId>,
    /// The last of them, which most samples come from.
    last_thread: Option<(u64, ThreadId)>,
    /// The stack that is being read, innermost step first.
    steps: Vec<Step>,
    /// The last one, in the same order: most stacks share their outer steps with the one before.
    last: Vec<Step>,
    /// The nodes of its steps, that of the outermost first, as far as they are known.
    last_nodes: Vec<NodeId>,
    /// The frames of one place in machine code.
    inlined: Vec<RawFrame>,
    nodes: Nodes,
    generation: u32,
    process: u32,
}

impl Stacks {
    /// No stacks yet.
    #[must_use]
    pub fn new(vmprof: Vmprof) -> Self {
        Self {
            vmprof,
            codes: FxHashMap::default(),
            collector: [None; 2],
            threads: FxHashMap::default(),
            last_thread: None,
            steps: Vec::with_capacity(256),
            last: Vec::with_capacity(256),
            last_nodes: Vec::with_capacity(256),
            inlined: Vec::with_capacity(256),
            nodes: Nodes::new(),
            generation: 0,
            process: std::process::id(),
        }
    }

    /// Gives `_vmprof` back.
    #[must_use]
    pub fn into_vmprof(self) -> Vmprof {
        self.vmprof
    }

    /// `_vmprof`, to be attached anew.
    pub fn vmprof(&mut self) -> &mut Vmprof {
        &mut self.vmprof
    }

    /// Tells the profile's generation. If it is another one than last time, everything is defined anew,
    /// and the answer is true.
    pub fn generation(&mut self, generation: u32) -> bool {
        let is_new = self.generation != generation;
        if is_new {
            self.begin_anew();
        }
        self.generation = generation;
        is_new
    }

    /// The profile is a new one.
    #[cold]
    #[inline(never)]
    fn begin_anew(&mut self) {
        self.codes.clear();
        self.threads.clear();
        self.last_thread = None;
        self.forget_nodes();
        self.collector = [None; 2];
        self.process = std::process::id();
        OS_THREAD.set(0);
    }

    /// Whether stacks may be wrong: see [`Vmprof::is_broken`].
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.vmprof.is_broken()
    }

    /// A minor collection has ended.
    pub fn collected(&mut self) {
        self.vmprof.collected();
    }

    /// Machine code may have been freed.
    pub fn code_freed(&mut self) {
        self.vmprof.code_freed();
    }

    /// Ticks that fell into a walk of the same thread, to be recorded with that walk's stack.
    #[must_use]
    pub fn missed_ticks(&self) -> u32 {
        self.vmprof.missed_ticks()
    }

    /// The calling thread, if there is room in the ring.
    pub fn thread(&mut self, recorder: &mut Recorder) -> Option<ThreadId> {
        self.thread_number(recorder, os_thread())
    }

    fn thread_number(&mut self, recorder: &mut Recorder, os_id: u64) -> Option<ThreadId> {
        if let Some((last, thread)) = self.last_thread
            && last == os_id
        {
            return Some(thread);
        }
        self.other_thread(recorder, os_id)
    }

    /// The same for another thread than last time.
    #[cold]
    #[inline(never)]
    fn other_thread(&mut self, recorder: &mut Recorder, os_id: u64) -> Option<ThreadId> {
        if let Some(&known) = self.threads.get(&os_id) {
            self.last_thread = Some((os_id, known));
            return Some(known);
        }
        self.threads.try_reserve(1).ok()?;
        let name = if os_id == u64::from(self.process) {
            "MainThread"
        } else {
            ""
        };
        let thread = recorder.thread(&Thread { os_id, name })?;
        self.threads.insert(os_id, thread);
        Some(thread)
    }

    /// Gives the threads that took samples their names.
    pub fn name_threads(&self, recorder: &mut Recorder, names: Vec<(u64, String)>) {
        for (os_id, name) in names {
            if let Some(&thread) = self.threads.get(&os_id) {
                recorder.thread_name(thread, &name);
            }
        }
    }

    /// The calling thread and its stack; `None` if the ring has no room for what is new of them. What the agent
    /// itself has Python allocate is nobody's.
    pub fn here(&mut self, recorder: &mut Recorder) -> Option<(ThreadId, NodeId)> {
        let thread = self.thread(recorder)?;
        if GilTrap::is_set() {
            return Some((thread, NodeId::ROOT));
        }
        self.vmprof.stack(&mut self.steps);
        if self.vmprof.renew() {
            self.forget_nodes();
        }
        Some((thread, self.intern(recorder)?))
    }

    /// Steps may lead to other nodes than before.
    #[cold]
    #[inline(never)]
    fn forget_nodes(&mut self) {
        self.last_nodes.clear();
        self.nodes.clear();
    }

    /// Records the time samples that were taken since the last call.
    pub fn ticks(&mut self, recorder: &mut Recorder) {
        if !Vmprof::is_ticking() {
            return;
        }
        while let Some(tick) = self.vmprof.next_tick(&mut self.steps) {
            let thread = self.thread_number(recorder, tick.thread);
            let mut stack = self.intern(recorder);
            if let Some(work) = tick.collecting {
                stack = stack.and_then(|stack| self.collecting(recorder, stack, work));
            }
            match (thread, stack) {
                (Some(thread), Some(stack)) => {
                    let time = recorder.at(tick.monotonic_nanos);
                    recorder.cpu(CpuSample {
                        time,
                        thread,
                        stack,
                    });
                }
                _ => recorder.lost(LostKind::CpuSamples, 1),
            }
        }
        recorder.lost(LostKind::CpuSamples, self.vmprof.lost_ticks());
    }

    /// `stack` with the collector on top.
    fn collecting(&mut self, recorder: &mut Recorder, stack: NodeId, work: Work) -> Option<NodeId> {
        let known = &mut self.collector[work as usize];
        if known.is_none() {
            *known = recorder.code(&Code {
                name: match work {
                    Work::Minor => "minor collection",
                    Work::Major => "major collection",
                },
                file: "",
                first_line: 0,
                lines: Lines::Direct,
            });
        }
        let code = (*known)?;
        recorder.node(Node {
            parent: stack,
            code,
            position: 0,
            kind: FrameKind::Gc,
        })
    }

    /// The node of the stack in `steps`, which becomes the last one.
    fn intern(&mut self, recorder: &mut Recorder) -> Option<NodeId> {
        let pairs = self.steps.iter().rev().zip(self.last.iter().rev());
        let alike = pairs.take_while(|(new, last)| new == last).count();
        let shared = alike.min(self.last_nodes.len());
        self.last_nodes.truncate(shared);
        std::mem::swap(&mut self.steps, &mut self.last);
        let fresh = self.last.len() - shared;
        self.last_nodes.try_reserve(fresh).ok()?;
        for depth in shared..self.last.len() {
            self.nodes.prefetch(self.slot(depth));
        }
        let mut node = self.last_nodes.last().copied().unwrap_or(NodeId::ROOT);
        for depth in shared..self.last.len() {
            let (slot, step) = (self.slot(depth), self.step(depth));
            node = match self.nodes.get(slot, node, step) {
                Some(known) => known,
                None => self.new_below(recorder, node, step, slot)?,
            };
            self.last_nodes.push(node);
        }
        Some(node)
    }

    /// The step of the last stack so many steps from the outermost.
    fn step(&self, depth: usize) -> Step {
        self.last[self.last.len() - 1 - depth]
    }

    /// Where the node is known that this step leads to.
    fn slot(&self, depth: usize) -> Slot {
        let outside = depth.checked_sub(1).map(|depth| self.step(depth));
        Slot::of(self.step(depth), outside, depth)
    }

    /// The node to which a step leads from another one, where that is not known.
    #[inline(never)]
    fn new_below(
        &mut self,
        recorder: &mut Recorder,
        parent: NodeId,
        step: Step,
        slot: Slot,
    ) -> Option<NodeId> {
        let node = match step.kind() {
            StepKind::Frame(frame) => self.frame(recorder, parent, frame)?,
            StepKind::Place(place) => {
                let mut inlined = std::mem::take(&mut self.inlined);
                self.vmprof.inlined(place, &mut inlined);
                let mut outermost_first = inlined.iter().rev();
                let node = outermost_first
                    .try_fold(parent, |node, &frame| self.frame(recorder, node, frame));
                self.inlined = inlined;
                node?
            }
        };
        self.nodes.put(slot, parent, step, node);
        Some(node)
    }

    fn frame(
        &mut self,
        recorder: &mut Recorder,
        parent: NodeId,
        frame: RawFrame,
    ) -> Option<NodeId> {
        let kind = if frame.compiled {
            FrameKind::Jit
        } else {
            FrameKind::Interpreted
        };
        match self.code(recorder, frame.unique_id)? {
            Some(code) => recorder.node(Node {
                parent,
                code,
                position: 0,
                kind,
            }),
            None => Some(NodeId::ROOT),
        }
    }

    fn code(&mut self, recorder: &mut Recorder, unique_id: u64) -> Option<Option<CodeId>> {
        if let Some(&known) = self.codes.get(&unique_id) {
            return Some(known);
        }
        self.codes.try_reserve(1).ok()?;
        let unnamed = CodeName {
            name: "(code without a name)".to_owned(),
            file: String::new(),
            line: 0,
        };
        let code = self.vmprof.name(unique_id).unwrap_or(&unnamed);
        let code = if code.file.ends_with(LAUNCHER) {
            None
        } else {
            let lines = Lines::Direct;
            Some(recorder.code(&Code {
                name: &code.name,
                file: &code.file,
                first_line: code.line,
                lines,
            })?)
        };
        self.codes.insert(unique_id, code);
        Some(code)
    }
}
