//! The stack of the current thread, as a node of the stack tree.
//!
//! A walk starts at the innermost frame, reads four words per frame, and stores them. The walk keeps the nodes of all
//! outer frames that are the same as in the previous sample, counted from the outermost frame. Only the other frames
//! need a look-up. So a deep stack with a change at its inner end costs one comparison per unchanged frame.
//!
//! No code here creates an object, runs Python code, or allocates from the heap that called it.

use nthbyte_profile::event::{FrameKind, Node, NodeId};

use crate::layout::{Layout, UNUSED};
use crate::memory::field;
use crate::sampling::codes::Codes;
use nthbyte_session::{Appearance, PerEpoch, Recording};

/// The largest number of recorded frames of a stack. A deeper stack keeps its innermost frames, and a note replaces the
/// others.
pub const MAX_DEPTH: usize = 4096;
/// The text of that note.
pub const CUT_NOTE: &str = "(deeper than 4096 frames: outer frames cut)";

/// The data of a frame at the time of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    frame: usize,
    code: usize,
    instruction: usize,
}

/// Walks stacks, and stores the last one.
#[derive(Default)]
pub struct Walker {
    /// The frames of the last walk, outermost frame last.
    seen: Vec<Seen>,
    /// The nodes of the last walk, outermost frame first.
    nodes: PerEpoch<Vec<NodeId>>,
    /// The frames of the walk before it, for comparison.
    before: Vec<Seen>,
    /// Whether the last walk was cut, and whether the one before it was.
    cut: bool,
    cut_before: bool,
}

impl Walker {
    /// Discards the nodes of the last stack: one of its code objects may have been freed.
    pub const fn forget(&mut self) {
        self.nodes.forget();
    }

    /// The stack of a thread; `None` if there is no room to record it.
    ///
    /// # Safety
    /// The GIL is held by the caller, and `thread` is its live `PyThreadState` with this layout.
    pub unsafe fn stack(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
    ) -> Option<NodeId> {
        // SAFETY: by the contract.
        unsafe { self.walk(layout, thread, codes)? };
        // The vector keeps its memory.
        let nodes = self.nodes.of_or_begin(recording.epoch(), Vec::clear);
        let mut known = 0;
        let (now, before) = (self.seen.iter().rev(), self.before.iter().rev());
        if !self.cut && !self.cut_before {
            known = now
                .zip(before)
                .take_while(|(a, b)| a == b)
                .count()
                .min(nodes.len());
        }
        nodes.truncate(known);
        let mut parent = match nodes.last() {
            Some(&node) => node,
            None if self.cut => cut_node(recording)?,
            None => NodeId::ROOT,
        };
        nodes.try_reserve(self.seen.len() - known).ok()?;
        for at in (0..self.seen.len() - known).rev() {
            let Seen {
                code, instruction, ..
            } = self.seen[at];
            // SAFETY: the code object is alive: a frame of a running thread holds a reference.
            let id = match unsafe { codes.appearance(layout, code, recording)? } {
                Appearance::Frame(id) => Some(id),
                Appearance::FrameWithin(id) => (parent != NodeId::ROOT).then_some(id),
                Appearance::Hidden => None,
            };
            let Some(id) = id else {
                nodes.push(parent);
                continue;
            };
            let position = instruction.saturating_sub(code + layout.code_instructions);
            let node = Node {
                parent,
                code: id,
                position: u32::try_from(position).unwrap_or(0),
                kind: FrameKind::Interpreted,
            };
            parent = recording.node(node)?;
            nodes.push(parent);
        }
        Some(parent)
    }

    /// Fills `seen`.
    ///
    /// # Safety
    /// As for [`Self::stack`].
    unsafe fn walk(&mut self, layout: &Layout, thread: usize, codes: &Codes) -> Option<()> {
        std::mem::swap(&mut self.seen, &mut self.before);
        self.seen.clear();
        self.cut_before = std::mem::take(&mut self.cut);
        let first_without_code = layout.features.first_owner_without_code;
        // Fields in local variables: the compiler cannot know that no write below changes the layout.
        let [owner_at, code_at, instruction_at, previous_at] = [
            layout.frame_owner,
            layout.frame_code,
            layout.frame_instruction,
            layout.frame_previous,
        ];
        let mut room = self.seen.capacity().min(MAX_DEPTH);
        // SAFETY: the thread state is live, and so are the frames of a thread that holds the GIL. A frame is written
        // to `seen` only while its length is less than `room`, which is at most its capacity.
        unsafe {
            let holder = match layout.thread_cframe {
                UNUSED => thread,
                offset => field::<usize>(thread, offset),
            };
            let tags = layout.features.reference_tags;
            let mut frame = field::<usize>(holder, layout.current_frame);
            while frame != 0 {
                let owner = field::<u8>(frame, owner_at);
                let code = field::<usize>(frame, code_at) & !tags;
                if owner < first_without_code && code != 0 && codes.is_code(code) {
                    let len = self.seen.len();
                    if len == room {
                        if len == MAX_DEPTH {
                            self.cut = true;
                            break;
                        }
                        self.seen.try_reserve(64).ok()?;
                        room = self.seen.capacity().min(MAX_DEPTH);
                    }
                    let instruction = field::<usize>(frame, instruction_at);
                    self.seen.as_mut_ptr().add(len).write(Seen {
                        frame,
                        code,
                        instruction,
                    });
                    self.seen.set_len(len + 1);
                }
                frame = field::<usize>(frame, previous_at);
            }
        }
        Some(())
    }

    /// The first local variable of the last walk's outermost frame, and its code object.
    ///
    /// # Safety
    /// The walked thread has not run since.
    pub unsafe fn outermost(&self, layout: &Layout) -> Option<(usize, usize)> {
        let outermost = self.seen.last()?;
        // SAFETY: the frame is live, and so is its first local variable, if it has one. The tag bits are removed.
        Some((
            outermost.code,
            unsafe { field::<usize>(outermost.frame, layout.frame_locals) }
                & !layout.features.reference_tags,
        ))
    }
}

#[cold]
fn cut_node(recording: &mut Recording<'_>) -> Option<NodeId> {
    let code = recording.named_function(CUT_NOTE)?;
    recording.node(Node {
        parent: NodeId::ROOT,
        code,
        position: 0,
        kind: FrameKind::Note,
    })
}
