//! The stack of the current thread, as a node of the stack tree.
//!
//! A walk starts at the innermost frame, reads four words per frame, and stores them. The walk keeps the nodes of all
//! outer frames that are the same as in the previous sample, counted from the outermost frame. Only the other frames
//! need a look-up. So a deep stack with a change at its inner end costs one comparison per unchanged frame.
//!
//! No code here creates an object, runs Python code, or allocates from the heap that called it.

use nthbyte_profile::event::{FrameKind, Node, NodeId};

use crate::layout::{Entries, Layout, UNUSED};
use crate::memory::field;
use crate::sampling::codes::Codes;
use crate::sampling::kept::Kept;
use crate::sampling::merge::{Mark, MarkKind, Piece, merge};
use nthbyte_session::{PerEpoch, Recording};
use nthbyte_unwind::{Unfinished, Unwinder};

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

impl Seen {
    /// A frame of native code.
    const fn native(address: usize) -> Self {
        Self {
            frame: 0,
            code: 0,
            instruction: address,
        }
    }

    const fn is_native(&self) -> bool {
        self.code == 0
    }

    /// Where the frame is in its code object.
    #[inline(always)]
    fn position(&self, layout: &Layout) -> u32 {
        let start = self.code + layout.code_instructions;
        u32::try_from(self.instruction.saturating_sub(start)).unwrap_or(0)
    }
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
    /// The calls from C of the last walk, innermost first, if it was one with native frames.
    calls: Vec<Mark>,
    /// The Python frames of a walk, while they are merged with native ones.
    python: Vec<Seen>,
    /// [`Unwinder::generation`] at the last walk.
    modules: u64,
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
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn stack(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
    ) -> Option<NodeId> {
        // SAFETY: by the contract.
        unsafe {
            self.walk::<false>(layout, thread, codes)?;
            self.place(layout, codes, recording, None)
        }
    }

    /// The same with the frames of native code between the Python frames and inside of them, which `unwinder` has just
    /// walked. Native frames outside of all Python frames are left out.
    ///
    /// # Safety
    /// As for [`Self::stack`]. The thread is the calling one.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn stack_with_native(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
        unwinder: &mut Unwinder,
    ) -> Option<NodeId> {
        // SAFETY: by the contract.
        unsafe { self.walk::<true>(layout, thread, codes)? };
        if std::mem::replace(&mut self.modules, unwinder.generation()) != self.modules {
            self.forget();
        }
        std::mem::swap(&mut self.seen, &mut self.python);
        self.seen.clear();
        let most = self.python.len() + unwinder.frames().len();
        self.seen.try_reserve(most).ok()?;
        let (python, seen) = (&self.python, &mut self.seen);
        merge(
            python.len(),
            &self.calls,
            unwinder.frames(),
            |piece| match piece {
                Piece::Python(range) => seen.extend_from_slice(&python[range]),
                Piece::Native(address) => seen.push(Seen::native(address)),
                Piece::Collection | Piece::Gap => {}
            },
        );
        // SAFETY: by the contract.
        unsafe { self.place(layout, codes, recording, Some(unwinder)) }
    }

    /// What is kept of the calling thread's stack until its native frames are known. `walk` is the walk that has just met
    /// an unknown library.
    ///
    /// # Safety
    /// As for [`Self::stack`]. The thread is the calling one.
    pub unsafe fn kept(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
        walk: Unfinished,
    ) -> Option<Kept> {
        // SAFETY: by the contract.
        unsafe { self.walk::<true>(layout, thread, codes)? };
        // There are no nodes of this walk.
        self.forget();
        let mut python = Vec::new();
        python.try_reserve_exact(self.seen.len()).ok()?;
        for seen in &self.seen {
            // SAFETY: the code object is alive: a frame of a running thread holds a reference.
            let appearance = unsafe { codes.appearance(layout, seen.code, recording)? };
            python.push((appearance, seen.position(layout)));
        }
        let mut calls = Vec::new();
        calls.try_reserve_exact(self.calls.len()).ok()?;
        calls.extend_from_slice(&self.calls);
        Some(Kept {
            walk,
            python,
            marks: calls,
            collection: None,
            note: self.cut.then_some(CUT_NOTE),
            has_gaps: false,
        })
    }

    /// The node of the frames in `seen`.
    ///
    /// # Safety
    /// As for [`Self::stack`].
    #[inline(always)]
    unsafe fn place(
        &mut self,
        layout: &Layout,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
        mut unwinder: Option<&mut Unwinder>,
    ) -> Option<NodeId> {
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
            let seen = self.seen[at];
            let Seen {
                code, instruction, ..
            } = seen;
            if let Some(unwinder) = &mut unwinder
                && self.seen[at].is_native()
            {
                // Native frames outside of all Python frames that are shown are left out.
                if parent != NodeId::ROOT || self.python.is_empty() {
                    parent = unwinder.node(recording, parent, instruction)?;
                }
                nodes.push(parent);
                continue;
            }
            // SAFETY: the code object is alive: a frame of a running thread holds a reference.
            let appearance = unsafe { codes.appearance(layout, code, recording)? };
            let Some(id) = appearance.below(parent) else {
                nodes.push(parent);
                continue;
            };
            let node = Node {
                parent,
                code: id,
                position: seen.position(layout),
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
    #[inline(always)]
    unsafe fn walk<const WITH_CALLS: bool>(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &Codes,
    ) -> Option<()> {
        std::mem::swap(&mut self.seen, &mut self.before);
        self.seen.clear();
        self.calls.clear();
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
            let mut call = holder;
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
                if WITH_CALLS {
                    let stack = match layout.features.entries {
                        Entries::Frames => (owner >= first_without_code).then_some(frame),
                        Entries::CFrames {
                            frame_is_entry,
                            cframe_previous,
                        } => (field::<u8>(frame, frame_is_entry) != 0 && call != 0).then(|| {
                            let ended = call;
                            call = field::<usize>(call, cframe_previous);
                            ended
                        }),
                    };
                    if let Some(stack) = stack {
                        self.calls.try_reserve(1).ok()?;
                        let frames = self.seen.len();
                        self.calls.push(Mark {
                            frames,
                            stack,
                            kind: MarkKind::Call,
                        });
                    }
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
#[unsafe(link_section = "nthbyte_hot")]
fn cut_node(recording: &mut Recording<'_>) -> Option<NodeId> {
    recording.named_node(NodeId::ROOT, CUT_NOTE, FrameKind::Note)
}
