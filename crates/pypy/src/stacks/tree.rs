//! Converts raw stacks to nodes of the profile's stack tree.

use std::borrow::Cow;
use std::cell::RefCell;

use nthbyte_profile::event::{Code, FrameKind, Lines, Node, NodeId, ThreadId};

use super::frame_list::WHOLE_RECORD;
use super::known_names;
use super::links::{Step, StepKind};
use super::names::CodeName;
use super::nodes::{NodeSlot, Nodes};
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
    /// The frames of a place in machine code, and of the place that has called it.
    inlined: [Vec<RawFrame>; 2],
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
            inlined: [Vec::with_capacity(256), Vec::with_capacity(64)],
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
        let known = self
            .known
            .of_or_begin(recording.definitions(), Known::clear);
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
                    let outside = Outside {
                        node,
                        entered: depth.checked_sub(1).map(|outer| Entered {
                            step: self::step(&self.last, outer),
                            caller: outer
                                .checked_sub(1)
                                .map_or(NodeId::ROOT, |caller| known.last[caller]),
                        }),
                    };
                    let new = new_below(vmprof, inlined, recording, outside, step, inside)?;
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
fn slot(stack: &[Step], depth: usize) -> NodeSlot {
    let outside = depth.checked_sub(1).map(|depth| step(stack, depth));
    NodeSlot::of(step(stack, depth), outside, depth)
}

/// The outside of a step.
struct Outside {
    node: NodeId,
    /// The next step; `None` at the outer end.
    entered: Option<Entered>,
}

/// A step, and the node of its outside.
struct Entered {
    step: Step,
    caller: NodeId,
}

impl Outside {
    /// The node below which these frames of machine code are, innermost first. The interpreter enters the code of a loop, or
    /// of a whole function, in the frame that it runs: the outermost of them is that frame, once more.
    fn below(&self, frames: &[RawFrame]) -> NodeId {
        match (&self.entered, frames.last()) {
            (Some(entered), Some(&outermost)) if matches!(entered.step.kind(), StepKind::Frame(frame) if is_same(outermost, frame)) => {
                entered.caller
            }
            _ => self.node,
        }
    }
}

/// Whether a frame of machine code is the interpreter's frame directly outside of it. A call in machine code makes no frame
/// of the interpreter, and one of the interpreter enters machine code in its own frame.
const fn is_same(compiled: RawFrame, outside: RawFrame) -> bool {
    compiled.compiled && !outside.compiled && compiled.unique_id == outside.unique_id
}

/// Whether the outermost frame of machine code is the innermost one of the code that has called it: a function that was inlined
/// goes on in the code of its loop. If one of them has the function as its own caller, it is taken for another call.
fn goes_on(inner: &[RawFrame], outer: &[RawFrame]) -> bool {
    let (Some(&frame), Some(&outermost)) = (outer.first(), inner.last()) else {
        return false;
    };
    let recurs = |frames: &[RawFrame]| frames.windows(2).any(|pair| pair == [frame, frame]);
    frame == outermost && frame.compiled && !recurs(inner) && !recurs(outer)
}

/// Finds the node that a step leads to from another one, if the table does not have it. `inside` are the steps inside
/// of it.
#[inline(never)]
fn new_below(
    vmprof: &mut Vmprof,
    [inlined, caller]: &mut [Vec<RawFrame>; 2],
    recording: &mut Recording<'_>,
    outside: Outside,
    step: Step,
    inside: &[Step],
) -> Option<NodeId> {
    match step.kind() {
        StepKind::Frame(frame) => node_of_frame(recording, outside.node, frame),
        StepKind::Place(place) => {
            vmprof.inlined(place, inside, inlined);
            let parent = outside.below(inlined);
            let mut frames = &inlined[..];
            if let Some(StepKind::Place(outer)) = outside.entered.map(|entered| entered.step.kind())
            {
                vmprof.inlined(outer, inside, caller);
                if goes_on(inlined, caller) {
                    frames = &inlined[..inlined.len() - 1];
                }
            }
            let mut outermost_first = frames.iter().rev();
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
    shown(frames).try_fold(outside, |node, frame| node_of_frame(recording, node, frame))
}

/// The frames that are shown, outermost first: without the interpreter's that have [entered](is_same) machine code, and of
/// two alike in machine code only one, which [`goes_on`]. More of them are a recursion.
fn shown(frames: &[RawFrame]) -> impl Iterator<Item = RawFrame> {
    let has_entered = |at: usize| at > 0 && is_same(frames[at - 1], frames[at]);
    let is_alike = |at: usize| {
        let pair = frames.get(at..at + 2);
        pair.is_some_and(|pair| pair[0].compiled && pair[0] == pair[1])
    };
    let is_second_of_two =
        move |at: usize| is_alike(at) && !is_alike(at + 1) && (at == 0 || !is_alike(at - 1));
    (0..frames.len())
        .rev()
        .filter(move |&at| !has_entered(at) && !is_second_of_two(at))
        .map(|at| frames[at])
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn interpreted(unique_id: u64) -> RawFrame {
        RawFrame {
            compiled: false,
            unique_id,
        }
    }

    const fn compiled(unique_id: u64) -> RawFrame {
        RawFrame {
            compiled: true,
            ..interpreted(unique_id)
        }
    }

    #[test]
    fn a_frame_that_has_entered_machine_code_is_shown_once() {
        let (one, two) = (interpreted(4), interpreted(5));
        let stack = [
            // Calls in machine code, of the function itself; then a recursive call by the interpreter.
            compiled(4),
            compiled(4),
            compiled(4),
            one,
            one,
            // A function that goes on in the code of its loop.
            compiled(6),
            compiled(6),
            // Machine code of another function than the one outside of it.
            compiled(5),
            one,
            two,
        ];
        let [four, five, six] = [4, 5, 6].map(compiled);
        let expected = [two, one, five, six, one, four, four, four];
        assert_eq!(shown(&stack).collect::<Vec<_>>(), expected);
        let outside = |step| Outside {
            node: NodeId(2),
            entered: Some(Entered {
                step,
                caller: NodeId(1),
            }),
        };
        let frames = [compiled(5), compiled(4)];
        assert_eq!(outside(Step::frame(one)).below(&frames), NodeId(1));
        for other in [Step::frame(two), Step::frame(compiled(4)), Step::place(4)] {
            assert_eq!(outside(other).below(&frames), NodeId(2));
        }
        assert_eq!(outside(Step::frame(one)).below(&[]), NodeId(2));
    }

    #[test]
    fn a_function_goes_on_in_the_code_of_its_loop() {
        let [one, two] = [1, 2].map(compiled);
        assert!(goes_on(&[two, one], &[one, two]));
        assert!(goes_on(&[one], &[one]));
        for (inner, outer) in [
            (&[two, one][..], &[two, one][..]),
            (&[one], &[one, one]),
            (&[one, one], &[one]),
            (&[], &[one]),
            (&[one], &[]),
        ] {
            assert!(!goes_on(inner, outer), "{inner:?} {outer:?}");
        }
    }
}
