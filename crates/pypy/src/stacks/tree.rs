//! Converts raw stacks to nodes of the profile's stack tree.

use std::borrow::Cow;
use std::cell::RefCell;

use nthbyte_profile::event::{Code, FrameKind, Lines, Node, NodeId, ThreadId};

use super::frame_list::WHOLE_RECORD;
use super::known_names;
use super::links::{Step, StepKind};
use super::names::CodeName;
use super::nodes::{Nodes, Slot};
use super::record::RawFrame;
use super::vmprof::Vmprof;
use crate::gil_trap::GilTrap;
use nthbyte_session::{Appearance, Epoch, PerEpoch, Recording};

/// The launcher's file. Its frames, and the frames outside of them, belong to nthbyte and not to
/// the program.
const LAUNCHER: &str = "/nthbyte/_run.py";

thread_local! {
    static OS_THREAD: RefCell<PerEpoch<u64>> = const { RefCell::new(PerEpoch::new(0)) };
}

/// The operating system's number of the calling thread. It costs one system call for each thread, and another one in
/// the child of a fork.
fn os_thread(epoch: Epoch) -> u64 {
    OS_THREAD.with_borrow_mut(|number| {
        // SAFETY: gettid has no precondition.
        let ask = || unsafe { libc::syscall(libc::SYS_gettid) }.cast_unsigned();
        *number.of_or_begin(epoch, |number| *number = ask())
    })
}

/// Stacks of one session.
#[derive(Debug)]
pub struct Stacks {
    vmprof: Vmprof,
    /// The current stack, innermost step first.
    steps: Vec<Step>,
    /// The previous stack, in the same order: most stacks share their outer steps with the previous
    /// one.
    last: Vec<Step>,
    /// The frames of one place in machine code.
    inlined: Vec<RawFrame>,
    known: PerEpoch<Known>,
}

/// The known nodes of steps.
#[derive(Debug)]
struct Known {
    /// The nodes of the previous stack's steps, outermost first, as far as they are known.
    last: Vec<NodeId>,
    nodes: Nodes,
}

impl Known {
    #[cold]
    #[inline(never)]
    fn clear(&mut self) {
        self.last.clear();
        self.nodes.clear();
    }
}

impl Stacks {
    /// No stacks yet.
    #[must_use]
    pub fn new(vmprof: Vmprof) -> Self {
        Self {
            vmprof,
            steps: Vec::with_capacity(256),
            last: Vec::with_capacity(256),
            inlined: Vec::with_capacity(256),
            known: PerEpoch::new(Known {
                last: Vec::with_capacity(256),
                nodes: Nodes::new(),
            }),
        }
    }

    /// Returns `_vmprof` at the end.
    #[must_use]
    pub fn into_vmprof(self) -> Vmprof {
        self.vmprof
    }

    /// `_vmprof`, to attach it again.
    pub fn vmprof(&mut self) -> &mut Vmprof {
        &mut self.vmprof
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

    /// The calling thread. `None` if the ring has no room for its definition.
    pub fn thread(recording: &mut Recording<'_>) -> Option<ThreadId> {
        recording.thread(os_thread(recording.epoch()))
    }

    /// The calling thread and its stack; `None` if the ring has no room for the new definitions. An allocation
    /// at the agent's own request has no stack.
    pub fn here(&mut self, recording: &mut Recording<'_>) -> Option<(ThreadId, NodeId)> {
        let thread = Self::thread(recording)?;
        if GilTrap::is_set() {
            return Some((thread, NodeId::ROOT));
        }
        self.vmprof.stack(&mut self.steps);
        if self.vmprof.renew() {
            // Steps may now lead to other nodes.
            self.known.forget();
        }
        Some((thread, self.intern(recording)?))
    }

    /// The node of the stack in `steps`, which becomes the previous stack.
    fn intern(&mut self, recording: &mut Recording<'_>) -> Option<NodeId> {
        let known = self.known.of_or_begin(recording.epoch(), Known::clear);
        let pairs = self.steps.iter().rev().zip(self.last.iter().rev());
        let alike = pairs.take_while(|(new, last)| new == last).count();
        let shared = alike.min(known.last.len());
        known.last.truncate(shared);
        std::mem::swap(&mut self.steps, &mut self.last);
        let fresh = self.last.len() - shared;
        known.last.try_reserve(fresh).ok()?;
        for depth in shared..self.last.len() {
            known.nodes.prefetch(slot(&self.last, depth));
        }
        let mut node = known.last.last().copied().unwrap_or(NodeId::ROOT);
        for depth in shared..self.last.len() {
            let (slot, step) = (slot(&self.last, depth), step(&self.last, depth));
            node = match known.nodes.get(slot, node, step) {
                Some(found) => found,
                None => {
                    let (vmprof, inlined) = (&mut self.vmprof, &mut self.inlined);
                    let inside = &self.last[..self.last.len() - 1 - depth];
                    let new = new_below(vmprof, inlined, recording, node, step, inside)?;
                    known.nodes.put(slot, node, step, new);
                    new
                }
            };
            known.last.push(node);
        }
        Some(node)
    }
}

/// The step at a depth, counted from the outermost step.
fn step(stack: &[Step], depth: usize) -> Step {
    stack[stack.len() - 1 - depth]
}

/// The slot of the table for this step.
fn slot(stack: &[Step], depth: usize) -> Slot {
    let outside = depth.checked_sub(1).map(|depth| step(stack, depth));
    Slot::of(step(stack, depth), outside, depth)
}

/// Finds the node that a step leads to from another one, if the table does not have it. `inside` are the steps inside
/// of it.
#[inline(never)]
fn new_below(
    vmprof: &mut Vmprof,
    inlined: &mut Vec<RawFrame>,
    recording: &mut Recording<'_>,
    parent: NodeId,
    step: Step,
    inside: &[Step],
) -> Option<NodeId> {
    match step.kind() {
        StepKind::Frame(frame) => node_of_frame(recording, parent, frame),
        StepKind::Place(place) => {
            vmprof.inlined(place, inside, inlined);
            let mut outermost_first = inlined.iter().rev();
            outermost_first.try_fold(parent, |node, &frame| node_of_frame(recording, node, frame))
        }
    }
}

/// The node of a stack whose innermost frame is the first one.
pub fn node_of_frames(recording: &mut Recording<'_>, frames: &[RawFrame]) -> Option<NodeId> {
    let mut outside = NodeId::ROOT;
    if frames.len() >= WHOLE_RECORD {
        // Frames may be missing. If the launcher's are here, none are, and they replace this one.
        let note = "(outer frames not recorded)";
        outside = recording.named_node(NodeId::ROOT, note, FrameKind::Interpreted)?;
    }
    let mut outermost_first = frames.iter().rev();
    outermost_first.try_fold(outside, |node, &frame| {
        node_of_frame(recording, node, frame)
    })
}

fn node_of_frame(recording: &mut Recording<'_>, parent: NodeId, frame: RawFrame) -> Option<NodeId> {
    let kind = if frame.compiled {
        FrameKind::Jit
    } else {
        FrameKind::Interpreted
    };
    let appearance = match recording.function(frame.unique_id) {
        Some(known) => known,
        None => define(recording, frame.unique_id)?,
    };
    match appearance {
        Appearance::Frame(code) | Appearance::FrameWithin(code) => recording.node(Node {
            parent,
            code,
            position: 0,
            kind,
        }),
        // The frame is hidden together with all frames outside of it.
        Appearance::Hidden => Some(NodeId::ROOT),
    }
}

#[cold]
#[inline(never)]
fn define(recording: &mut Recording<'_>, unique_id: u64) -> Option<Appearance> {
    let Some(text) = known_names::name(recording, unique_id).map(Cow::into_owned) else {
        let unnamed = Code {
            name: "(code without a name)",
            file: "",
            first_line: 0,
            lines: Lines::Direct,
        };
        return recording.define_function(unique_id, &unnamed, Appearance::Frame);
    };
    let code = CodeName::parse(&text);
    if code.file.ends_with(LAUNCHER) {
        return recording.hide_function(unique_id);
    }
    let named = Code {
        name: code.name,
        file: code.file,
        first_line: code.line,
        lines: Lines::Direct,
    };
    recording.define_function(unique_id, &named, Appearance::Frame)
}
