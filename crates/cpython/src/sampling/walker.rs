//! The stack of the current thread, as a node of the stack tree.
//!
//! A walk starts at the innermost frame, and reads four words per frame. It ends where the frames are known to be as they
//! were at the last walk ([`data_stack`](crate::sampling::data_stack)), or at the outermost frame. The nodes of all outer
//! frames that are the same as in the previous sample are kept, counted from the outermost frame. Only the other frames need
//! a look-up. So what a sample costs depends on how much of the stack has changed, and not on its depth.
//!
//! No code here creates an object, runs Python code, or allocates from the heap that called it.

use nthbyte_profile::event::{FrameKind, Node, NodeId};

use crate::api::OB_TYPE;
use crate::layout::{Entries, Layout, UNUSED};
use crate::sampling::codes::Codes;
use crate::sampling::data_stack::{Chunks, Cursor, Passed, StackReader};
use crate::sampling::kept::Kept;
use crate::sampling::merge::{Mark, MarkKind, Piece, merge};
use nthbyte_host::process::field;
use nthbyte_session::{Epoch, PerEpoch, Recording};
use nthbyte_unwind::{UnfinishedWalk, Unwinder};

/// The largest number of recorded frames of a stack. A deeper stack keeps its innermost frames, and a note replaces the
/// others.
pub const MAX_DEPTH: usize = 4096;
/// How many frames remain when a stack has become deeper than that since the last walk. All of them get new nodes, so there
/// must be room for many calls until it happens again.
const KEPT_DEPTH: usize = 3072;
/// The smallest number of recorded frames of a cut stack. When returns have left fewer, the outer frames are walked again.
const LEAST_DEPTH: usize = 2048;
/// The text of that note.
pub const CUT_NOTE: &str = "(deeper than 2048 frames: outer frames cut)";
const _: () = assert!(LEAST_DEPTH == 2048 && LEAST_DEPTH < KEPT_DEPTH && KEPT_DEPTH < MAX_DEPTH);

/// The data of a frame at the time of a walk: what its node depends on. Where the frame lies is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    code: usize,
    instruction: usize,
}

impl Seen {
    /// A frame of native code.
    const fn native(address: usize) -> Self {
        Self {
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

/// Where a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the outermost frame.
    Whole,
    /// At [`MAX_DEPTH`].
    Cut,
    /// Outside of it are so many frames of the last stack.
    Known(usize),
}

/// What a walk reads.
#[derive(Default)]
struct Walk {
    /// The frames, innermost first.
    seen: Vec<Seen>,
    /// The chunks whose first frames are among them, innermost first. A walk with native frames has none.
    passed: Vec<Passed>,
    /// The calls from C, innermost first, of a walk with native frames.
    calls: Vec<Mark>,
}

/// Walks stacks, and stores the last one.
pub struct Walker {
    reader: StackReader,
    walk: Walk,
    placed: PerEpoch<LastStack>,
    /// The Python frames of a walk, while they are merged with native ones.
    python: Vec<Seen>,
    /// [`Unwinder::generation`] at the last walk.
    modules: u64,
}

impl Walker {
    /// A walker. There is one for each [`StackReader`].
    pub fn new(reader: StackReader) -> Self {
        Self {
            reader,
            walk: Walk::default(),
            placed: PerEpoch::default(),
            python: Vec::new(),
            modules: 0,
        }
    }

    /// Discards the nodes of the last stack: one of its code objects may have been freed.
    pub const fn forget(&mut self) {
        self.placed.forget();
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
            let end = self.read(layout, thread, codes, recording.definitions())?;
            self.place(layout, codes, recording, end, None)
        }
    }

    /// Reads what may have changed since the last walk.
    ///
    /// # Safety
    /// As for [`Self::stack`].
    #[inline(always)]
    unsafe fn read(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &Codes,
        epoch: Epoch,
    ) -> Option<End> {
        let placed = self.placed.of_or_begin(epoch, LastStack::clear);
        // SAFETY: by the contract.
        unsafe {
            let known = placed.chunks.unchanged(layout, self.reader, thread);
            let end = self.walk.run::<false>(layout, thread, codes, known)?;
            if let End::Known(outside) = end
                && placed.is_cut
                && outside + self.walk.seen.len() < LEAST_DEPTH
            {
                return self.walk.run::<false>(layout, thread, codes, None);
            }
            Some(end)
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
        let end = unsafe { self.walk.run::<true>(layout, thread, codes, None)? };
        if std::mem::replace(&mut self.modules, unwinder.generation()) != self.modules {
            self.forget();
        }
        let Walk { seen, calls, .. } = &mut self.walk;
        std::mem::swap(seen, &mut self.python);
        seen.clear();
        let python = &self.python;
        let most = python.len() + unwinder.frames().len();
        seen.try_reserve(most).ok()?;
        merge(
            python.len(),
            calls,
            unwinder.frames(),
            |piece| match piece {
                Piece::Python(range) => seen.extend_from_slice(&python[range]),
                Piece::Native(address) => seen.push(Seen::native(address)),
                Piece::Collection | Piece::Gap => {}
            },
        );
        // SAFETY: by the contract.
        unsafe { self.place(layout, codes, recording, end, Some(unwinder)) }
    }

    /// The calling thread's stack, which waits until its native frames are known. `walk` is the walk that has just met an
    /// unknown library.
    ///
    /// # Safety
    /// As for [`Self::stack`]. The thread is the calling one.
    pub unsafe fn kept(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
        walk: UnfinishedWalk,
    ) -> Option<Kept> {
        // SAFETY: by the contract.
        let end = unsafe { self.walk.run::<true>(layout, thread, codes, None)? };
        let Walk { seen, calls, .. } = &self.walk;
        // There are no nodes of this walk.
        self.placed.forget();
        let mut python = Vec::new();
        python.try_reserve_exact(seen.len()).ok()?;
        for seen in seen {
            // SAFETY: the code object is alive: a frame of a running thread holds a reference.
            let appearance = unsafe { codes.appearance(layout, seen.code, recording)? };
            python.push((appearance, seen.position(layout)));
        }
        let mut marks = Vec::new();
        marks.try_reserve_exact(calls.len()).ok()?;
        marks.extend_from_slice(calls);
        Some(Kept {
            walk,
            python,
            marks,
            collection: None,
            note: (end == End::Cut).then_some(CUT_NOTE),
            has_gaps: false,
        })
    }

    /// The node of the stack that was walked.
    ///
    /// # Safety
    /// As for [`Self::stack`].
    #[inline(always)]
    unsafe fn place(
        &mut self,
        layout: &Layout,
        codes: &mut Codes,
        recording: &mut Recording<'_>,
        end: End,
        mut unwinder: Option<&mut Unwinder>,
    ) -> Option<NodeId> {
        // The vectors keep their memory.
        let placed = self
            .placed
            .of_or_begin(recording.definitions(), LastStack::clear);
        // SAFETY: the thread has not run since the walk.
        unsafe { placed.take(&self.walk, end, self.reader)? };
        let LastStack {
            frames,
            nodes,
            is_cut,
            ..
        } = placed;
        let mut parent = match nodes.last() {
            Some(&node) => node,
            None if *is_cut => cut_node(recording)?,
            None => NodeId::ROOT,
        };
        nodes.try_reserve(frames.len() - nodes.len()).ok()?;
        for seen in &frames[nodes.len()..] {
            let Seen { code, instruction } = *seen;
            if let Some(unwinder) = &mut unwinder
                && seen.is_native()
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

    /// The code object of a thread's outermost frame, and the frame's first local variable. Reads all frames.
    ///
    /// # Safety
    /// As for [`Self::stack`].
    #[cold]
    pub unsafe fn outermost(
        layout: &Layout,
        thread: usize,
        codes: &Codes,
    ) -> Option<(usize, usize)> {
        let tags = layout.features.reference_tags;
        let first_without_code = layout.features.first_owner_without_code;
        let mut outermost = None;
        // SAFETY: by the contract. A frame with code has a local variable, or room for a value. The tag bits are removed.
        unsafe {
            let mut frame = field::<usize>(holder(layout, thread), layout.current_frame);
            while frame != 0 {
                let owner = field::<u8>(frame, layout.frame_owner);
                let code = field::<usize>(frame, layout.frame_code) & !tags;
                if has_code(first_without_code, owner, code, codes.code_type()) {
                    outermost = Some((code, frame));
                }
                frame = field(frame, layout.frame_previous);
            }
            let (code, frame) = outermost?;
            Some((code, field::<usize>(frame, layout.frame_locals) & !tags))
        }
    }
}

/// What has the address of a thread's innermost frame.
///
/// # Safety
/// `thread` is a live `PyThreadState` with this layout.
#[inline(always)]
unsafe fn holder(layout: &Layout, thread: usize) -> usize {
    match layout.thread_cframe {
        UNUSED => thread,
        // SAFETY: by the contract.
        offset => unsafe { field::<usize>(thread, offset) },
    }
}

/// Whether a frame runs a code object, by its fields.
///
/// # Safety
/// They are from a frame of a running thread.
#[inline(always)]
unsafe fn has_code(first_without_code: u8, owner: u8, code: usize, code_type: usize) -> bool {
    owner < first_without_code
        && code != 0
        // SAFETY: by the contract, this is a live object: each has a type.
        && unsafe { field::<usize>(code, OB_TYPE) == code_type }
}

impl Walk {
    /// Reads the frames of a thread, up to those that are `known`.
    ///
    /// # Safety
    /// As for [`Walker::stack`].
    #[inline(always)]
    unsafe fn run<const WITH_CALLS: bool>(
        &mut self,
        layout: &Layout,
        thread: usize,
        codes: &Codes,
        known: Option<Passed>,
    ) -> Option<End> {
        self.seen.clear();
        self.passed.clear();
        self.calls.clear();
        let first_without_code = layout.features.first_owner_without_code;
        // Fields in local variables: the compiler cannot know that no write below changes the layout.
        let [owner_at, code_at, instruction_at, previous_at] = [
            layout.frame_owner,
            layout.frame_code,
            layout.frame_instruction,
            layout.frame_previous,
        ];
        let code_type = codes.code_type();
        let (mut place, mut end) = self.room();
        // SAFETY: the thread state is live, and so are the frames of a thread that holds the GIL. A frame is written
        // to `seen` only while `place` is before `end`.
        unsafe {
            let holder = holder(layout, thread);
            let tags = layout.features.reference_tags;
            let mut frame = field::<usize>(holder, layout.current_frame);
            let mut call = holder;
            let mut chunks = Cursor::new(layout, thread);
            let mut first = chunks.first();
            while frame != 0 {
                let owner = field::<u8>(frame, owner_at);
                let code = field::<usize>(frame, code_at) & !tags;
                if has_code(first_without_code, owner, code, code_type) {
                    if place == end {
                        self.filled(place);
                        if self.seen.len() == MAX_DEPTH {
                            return Some(End::Cut);
                        }
                        self.seen.try_reserve(64).ok()?;
                        (place, end) = self.room();
                    }
                    let instruction = field::<usize>(frame, instruction_at);
                    place.write(Seen { code, instruction });
                    place = place.add(1);
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
                        self.filled(place);
                        self.calls.try_reserve(1).ok()?;
                        self.calls.push(Mark {
                            frames: self.seen.len(),
                            stack,
                            kind: MarkKind::Call,
                        });
                    }
                }
                let previous = field::<usize>(frame, previous_at);
                if !WITH_CALLS && frame == first {
                    self.filled(place);
                    let passed = Passed {
                        chunk: chunks.leave(),
                        frames: self.seen.len(),
                    };
                    pass(&mut self.passed, passed)?;
                    first = chunks.first();
                    if let Some(known) = known
                        && known.chunk == passed.chunk
                    {
                        return Some(End::Known(known.frames));
                    }
                }
                frame = previous;
            }
            self.filled(place);
        }
        Some(End::Whole)
    }

    /// Where the next frame goes, and the end of the room for frames.
    #[inline(always)]
    fn room(&mut self) -> (*mut Seen, *mut Seen) {
        let (len, room) = (self.seen.len(), self.seen.capacity().min(MAX_DEPTH));
        let start = self.seen.as_mut_ptr();
        // SAFETY: both are in the vector's memory, or at its end.
        unsafe { (start.add(len), start.add(room)) }
    }

    /// The frames before `place` have been written.
    ///
    /// # Safety
    /// That is so, and `place` is in the room for frames, or at its end.
    #[inline(always)]
    unsafe fn filled(&mut self, place: *const Seen) {
        // SAFETY: by the contract.
        unsafe {
            let len = place.offset_from_unsigned(self.seen.as_ptr());
            self.seen.set_len(len);
        }
    }
}

/// Once in some hundred frames.
#[cold]
#[inline(never)]
#[unsafe(link_section = "nthbyte_hot")]
fn pass(all: &mut Vec<Passed>, one: Passed) -> Option<()> {
    all.try_reserve(1).ok()?;
    all.push(one);
    Some(())
}

#[cold]
#[unsafe(link_section = "nthbyte_hot")]
fn cut_node(recording: &mut Recording<'_>) -> Option<NodeId> {
    recording.named_node(NodeId::ROOT, CUT_NOTE, FrameKind::Note)
}

/// The last stack, outermost frame first.
#[derive(Default)]
struct LastStack {
    frames: Vec<Seen>,
    /// The nodes of the frames; fewer if there was no room for some.
    nodes: Vec<NodeId>,
    /// Whether outer frames are missing.
    is_cut: bool,
    chunks: Chunks,
}

impl LastStack {
    fn clear(&mut self) {
        self.frames.clear();
        self.nodes.clear();
        self.chunks.clear();
        self.is_cut = false;
    }

    /// Takes over a walk: keeps the frames, and their nodes, that are the same.
    ///
    /// # Safety
    /// The walked thread has not run since.
    #[inline(always)]
    unsafe fn take(&mut self, walk: &Walk, end: End, reader: StackReader) -> Option<()> {
        let seen = &walk.seen;
        let outside = match end {
            End::Known(outside) => outside,
            End::Whole | End::Cut => 0,
        };
        self.frames.try_reserve(seen.len()).ok()?;
        // Where frames are missing, a frame and its place say nothing.
        let is_aligned = match end {
            End::Known(_) => true,
            End::Whole => !self.is_cut,
            End::Cut => false,
        };
        let mut same = outside;
        let mut new = seen.len();
        if is_aligned {
            let before = &self.frames[outside..];
            let most = before.len().min(new);
            // Two pointers: this is half of what a sample costs in a stack of usual depth.
            // SAFETY: `most` frames are there, from the outer end of both on.
            unsafe {
                let mut now = seen.as_ptr().add(new);
                let mut old = before.as_ptr();
                let end = old.add(most);
                while old != end && *old == *now.sub(1) {
                    (now, old) = (now.sub(1), old.add(1));
                }
                let equal = most - end.offset_from_unsigned(old);
                (new, same) = (new - equal, same + equal);
            }
        }
        if !matches!(end, End::Known(_)) {
            self.chunks.clear();
            self.is_cut = end == End::Cut;
        }
        self.frames.truncate(same);
        self.nodes.truncate(same);
        self.frames.extend(seen[..new].iter().rev());
        if !walk.passed.is_empty() {
            // SAFETY: by the contract.
            unsafe { self.chunks.add(reader, self.frames.len(), &walk.passed) };
        }
        if self.frames.len() > MAX_DEPTH {
            let dropped = self.frames.len() - KEPT_DEPTH;
            self.frames.drain(..dropped);
            self.nodes.clear();
            self.chunks.drop_outer(dropped);
            self.is_cut = true;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
